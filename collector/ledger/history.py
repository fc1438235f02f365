"""The statements of migrations, word for word: what a ledger was made of once, whatever the code says today.

Nothing here is made of tables in code and none that was released is ever edited. A test holds each to its hash.
"""

from __future__ import annotations

from typing import Final

INITIAL: Final = (
    """CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT""",
    """CREATE TABLE shape (no INTEGER PRIMARY KEY, vm TEXT, runtime TEXT, source TEXT, model TEXT, model_source TEXT,
    upstream TEXT, wire TEXT, service_tier TEXT, grain TEXT, session_source TEXT, attribution TEXT) STRICT""",
    """CREATE TABLE kind (no INTEGER PRIMARY KEY, usage TEXT, outcome TEXT, cost_status TEXT, cost_source TEXT,
    cost_basis TEXT, cost_caveat TEXT, reason TEXT, counted INTEGER NOT NULL) STRICT""",
    """CREATE TABLE rates (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, data TEXT NOT NULL) STRICT""",
    """CREATE TABLE boot (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, vm TEXT NOT NULL) STRICT""",
    """CREATE TABLE seen (boot INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (boot,
    first)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE session (no INTEGER PRIMARY KEY, vm TEXT NOT NULL, runtime TEXT NOT NULL, session_id TEXT NOT NULL,
    listed INTEGER NOT NULL, started INTEGER, ended INTEGER, model TEXT, model_source TEXT NOT NULL, parent TEXT,
    first INTEGER, last INTEGER, last_model TEXT, last_model_source TEXT, last_model_at INTEGER, calls INTEGER NOT
    NULL, recency INTEGER, UNIQUE (vm, runtime, session_id)) STRICT""",
    """CREATE TABLE reference (vm TEXT NOT NULL, runtime TEXT NOT NULL, reference TEXT NOT NULL, session INTEGER NOT
    NULL, PRIMARY KEY (vm, runtime, reference)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE record (id INTEGER PRIMARY KEY, ts INTEGER, day INTEGER NOT NULL, shape INTEGER NOT NULL, kind
    INTEGER NOT NULL, session INTEGER NOT NULL, ref INTEGER, input_tokens INTEGER, cache_read_tokens INTEGER,
    cache_write_tokens INTEGER, cache_write_1h_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER, cost
    INTEGER, rates INTEGER, acu INTEGER, http_status INTEGER, stream INTEGER, duration_ms INTEGER, ttft_ms INTEGER,
    response TEXT, ended INTEGER, withdrawn INTEGER NOT NULL) STRICT""",
    """CREATE TABLE vendor (key BLOB NOT NULL, id INTEGER NOT NULL, owner INTEGER NOT NULL, revision INTEGER NOT NULL,
    PRIMARY KEY (key)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE copy (key BLOB NOT NULL, session INTEGER NOT NULL, PRIMARY KEY (key, session)) STRICT, WITHOUT
    ROWID""",
    """CREATE TABLE usage_day (day INTEGER NOT NULL, shape INTEGER NOT NULL, kind INTEGER NOT NULL, calls INTEGER NOT
    NULL, input_tokens INTEGER NOT NULL, cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,
    cache_write_1h_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
    known_input_tokens INTEGER NOT NULL, known_cache_read_tokens INTEGER NOT NULL, known_cache_write_tokens INTEGER
    NOT NULL, known_cache_write_1h_tokens INTEGER NOT NULL, known_output_tokens INTEGER NOT NULL,
    known_reasoning_tokens INTEGER NOT NULL, without_tokens INTEGER NOT NULL, priced INTEGER NOT NULL, cost_micro
    INTEGER NOT NULL, cost_rest INTEGER NOT NULL, acu_known INTEGER NOT NULL, acu INTEGER NOT NULL, PRIMARY KEY
    (day, shape, kind)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE usage_session (session INTEGER NOT NULL, day INTEGER NOT NULL, shape INTEGER NOT NULL, kind INTEGER
    NOT NULL, calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL, cache_write_1h_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL, known_input_tokens INTEGER NOT NULL, known_cache_read_tokens INTEGER NOT
    NULL, known_cache_write_tokens INTEGER NOT NULL, known_cache_write_1h_tokens INTEGER NOT NULL,
    known_output_tokens INTEGER NOT NULL, known_reasoning_tokens INTEGER NOT NULL, without_tokens INTEGER NOT NULL,
    priced INTEGER NOT NULL, cost_micro INTEGER NOT NULL, cost_rest INTEGER NOT NULL, acu_known INTEGER NOT NULL,
    acu INTEGER NOT NULL, PRIMARY KEY (session, day, shape, kind)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE turn (vm TEXT NOT NULL, runtime TEXT NOT NULL, ts INTEGER NOT NULL, session INTEGER NOT NULL, model
    TEXT, placeholder INTEGER NOT NULL, PRIMARY KEY (vm, runtime, ts, session)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE evidence (key BLOB NOT NULL, vm TEXT NOT NULL, runtime TEXT NOT NULL, session_id TEXT NOT NULL, ts
    INTEGER, model TEXT, input_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,
    cache_write_1h_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER, PRIMARY KEY (key)) STRICT,
    WITHOUT ROWID""",
    """CREATE TABLE refusal (reason TEXT NOT NULL, runtime TEXT NOT NULL, vm TEXT NOT NULL, count INTEGER NOT NULL,
    first INTEGER, last INTEGER, examples TEXT NOT NULL, PRIMARY KEY (reason, runtime, vm)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE quarantine (head BLOB NOT NULL, offset INTEGER NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL,
    at INTEGER NOT NULL, PRIMARY KEY (head, offset)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE log (head BLOB NOT NULL, dev INTEGER NOT NULL, ino INTEGER NOT NULL, path TEXT NOT NULL, size
    INTEGER NOT NULL, mtime INTEGER NOT NULL, offset INTEGER NOT NULL, tail BLOB NOT NULL, skipping INTEGER NOT
    NULL, length INTEGER NOT NULL, read_at INTEGER NOT NULL, error TEXT, PRIMARY KEY (head, dev, ino)) STRICT,
    WITHOUT ROWID""",
    """CREATE TABLE store (path TEXT PRIMARY KEY, runtime TEXT NOT NULL, stamp TEXT NOT NULL, state TEXT, read_at
    INTEGER, error TEXT) STRICT""",
    """CREATE TABLE change (no INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL) STRICT""",
    """CREATE TABLE estimate (record INTEGER NOT NULL, made_at INTEGER NOT NULL, cost INTEGER, kind INTEGER NOT NULL,
    rates INTEGER, PRIMARY KEY (record, made_at)) STRICT, WITHOUT ROWID""",
    """CREATE UNIQUE INDEX shape_all ON shape (ifnull(vm, char(0)), ifnull(runtime, char(0)), ifnull(source, char(0)),
    ifnull(model, char(0)), ifnull(model_source, char(0)), ifnull(upstream, char(0)), ifnull(wire, char(0)),
    ifnull(service_tier, char(0)), ifnull(grain, char(0)), ifnull(session_source, char(0)), ifnull(attribution,
    char(0)))""",
    """CREATE UNIQUE INDEX kind_all ON kind (ifnull(usage, char(0)), ifnull(outcome, char(0)), ifnull(cost_status,
    char(0)), ifnull(cost_source, char(0)), ifnull(cost_basis, char(0)), ifnull(cost_caveat, char(0)),
    ifnull(reason, char(0)), ifnull(counted, char(0)))""",
    """CREATE INDEX record_ts ON record (ts)""",
    """CREATE INDEX record_session ON record (session, ts)""",
    """CREATE INDEX record_withdrawn ON record (withdrawn) WHERE withdrawn > 0""",
    """CREATE INDEX record_ref ON record (ref) WHERE ref != session""",
    """CREATE UNIQUE INDEX vendor_id ON vendor (id)""",
    """CREATE INDEX session_seen ON session (vm, runtime, first, started, last, ended) WHERE listed OR calls""",
    """CREATE INDEX session_recency ON session (recency, no) WHERE listed OR calls""",
    """CREATE VIEW call AS SELECT CASE WHEN boot.no IS NULL THEN lower(hex(vendor.key)) ELSE boot.name || '-' ||
    (record.id & 1099511627775) END AS id, datetime(record.ts / 1000.0, 'unixepoch') AS at, session.session_id,
    shape.vm, shape.runtime, shape.source, shape.model, shape.model_source, shape.upstream, shape.wire,
    shape.service_tier, shape.grain, shape.session_source, shape.attribution, record.input_tokens,
    record.cache_read_tokens, record.cache_write_tokens, record.cache_write_1h_tokens, record.output_tokens,
    record.reasoning_tokens, record.cost / 1e12 AS cost_usd, kind.usage, kind.outcome, kind.cost_status,
    kind.cost_source, kind.cost_basis, kind.cost_caveat, kind.reason FROM record JOIN shape ON shape.no =
    record.shape JOIN kind ON kind.no = record.kind JOIN session ON session.no = record.session LEFT JOIN boot ON
    boot.no = record.id >> 40 LEFT JOIN vendor ON vendor.id = record.id WHERE record.withdrawn = 0""",
)

FLEET: Final = (
    """CREATE TABLE hub_token (id TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, vm TEXT NOT NULL, names TEXT NOT NULL,
    created INTEGER NOT NULL, expires INTEGER, revoked INTEGER) STRICT""",
    """CREATE TABLE hub_vm (vm TEXT PRIMARY KEY, born INTEGER NOT NULL, cursor INTEGER NOT NULL, first INTEGER NOT
    NULL, last INTEGER NOT NULL, skew INTEGER, version TEXT, waiting INTEGER NOT NULL, facts TEXT NOT NULL) STRICT""",
    """CREATE TABLE hub_refused (vm TEXT NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY
    KEY (vm, id, reason)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE push_refused (id TEXT PRIMARY KEY, reason TEXT NOT NULL, at INTEGER NOT NULL) STRICT""",
)

_SUMS: Final = """calls, input_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, output_tokens,
    reasoning_tokens, known_input_tokens, known_cache_read_tokens, known_cache_write_tokens,
    known_cache_write_1h_tokens, known_output_tokens, known_reasoning_tokens, without_tokens, priced, cost_micro,
    cost_rest, acu_known, acu"""
_ADDED: Final = ", ".join(f"sum({name.strip()})" for name in _SUMS.split(","))
_COUNTED: Final = ", ".join(f"{name.strip()} INTEGER NOT NULL" for name in _SUMS.split(","))
_SLICE: Final = ("vm", "runtime", "source", "model", "upstream")
_LEVELS: Final = (
    "",
    "runtime source",
    "model",
    "vm",
    "vm runtime",
    "runtime source model upstream",
    "vm runtime source model upstream",
)


def _filled(level: int, names: str) -> tuple[str, str]:
    """Make the slices of one level, and put every shape into its own."""
    values = [name if name in names.split() else "NULL" for name in _SLICE]
    same = " AND ".join(
        f"ifnull(slice.{name}, char(0)) = ifnull({'NULL' if value == 'NULL' else f'shape.{value}'}, char(0))"
        for name, value in zip(_SLICE, values, strict=True)
    )
    return (
        f"INSERT INTO slice (level, {', '.join(_SLICE)}) SELECT DISTINCT {level}, {', '.join(values)} FROM shape",
        f"INSERT INTO shape_slice SELECT shape.no, slice.no FROM shape JOIN slice ON slice.level = {level} AND {same}",
    )


SPANS: Final = (
    "ALTER TABLE session ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE session ADD COLUMN cost_micro INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE session ADD COLUMN cost_rest INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE quarantine ADD COLUMN line TEXT",
    "ALTER TABLE copy ADD COLUMN ts INTEGER",
    """UPDATE copy SET ts = (
    SELECT record.ts FROM vendor JOIN record ON record.id = vendor.id WHERE vendor.key = copy.key)""",
    "CREATE INDEX copy_session ON copy (session, ts)",
    """CREATE TABLE presence (vm TEXT NOT NULL, runtime TEXT NOT NULL, sessions INTEGER NOT NULL,
    PRIMARY KEY (vm, runtime)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE slice (no INTEGER PRIMARY KEY, level INTEGER NOT NULL, vm TEXT, runtime TEXT, source TEXT,
    model TEXT, upstream TEXT) STRICT""",
    """CREATE TABLE shape_slice (shape INTEGER NOT NULL, slice INTEGER NOT NULL, PRIMARY KEY (shape, slice)) STRICT,
    WITHOUT ROWID""",
    f"""CREATE TABLE usage_span (slice INTEGER NOT NULL, grain INTEGER NOT NULL, block INTEGER NOT NULL,
    kind INTEGER NOT NULL, {_COUNTED}, PRIMARY KEY (slice, grain, block, kind)) STRICT, WITHOUT ROWID""",
    """CREATE UNIQUE INDEX slice_all ON slice (level, ifnull(vm, char(0)), ifnull(runtime, char(0)),
    ifnull(source, char(0)), ifnull(model, char(0)), ifnull(upstream, char(0)))""",
    *(statement for level, names in enumerate(_LEVELS) for statement in _filled(level, names)),
    f"""INSERT INTO usage_span (slice, grain, block, kind, {_SUMS})
    SELECT shape_slice.slice, 0, usage_day.day, usage_day.kind, {_ADDED}
    FROM usage_day JOIN shape_slice ON shape_slice.shape = usage_day.shape GROUP BY 1, 2, 3, 4""",
    *(
        f"""INSERT INTO usage_span (slice, grain, block, kind, {_SUMS})
    SELECT slice, {grain}, block >> 3, kind, {_ADDED} FROM usage_span WHERE grain = {grain - 3} GROUP BY 1, 2, 3, 4"""
        for grain in (3, 6, 9)
    ),
    "DROP TABLE usage_day",
    "CREATE INDEX usage_span_empty ON usage_span (slice) WHERE calls = 0",
    """UPDATE session SET tokens = used.tokens, cost_micro = used.cost_micro, cost_rest = used.cost_rest FROM (
    SELECT session, sum(input_tokens + cache_read_tokens + cache_write_tokens + output_tokens) AS tokens,
        sum(cost_micro) AS cost_micro, sum(cost_rest) AS cost_rest FROM usage_session GROUP BY session) AS used
    WHERE used.session = session.no""",
    "INSERT INTO presence SELECT vm, runtime, count(*) FROM session WHERE listed OR calls GROUP BY vm, runtime",
    """CREATE TRIGGER session_shown AFTER UPDATE OF listed, calls ON session
    WHEN (old.listed OR old.calls) != (new.listed OR new.calls)
    BEGIN INSERT INTO presence VALUES (new.vm, new.runtime, (new.listed OR new.calls) - (old.listed OR old.calls))
    ON CONFLICT DO UPDATE SET sessions = sessions + excluded.sessions; END""",
    "DROP INDEX session_seen",
    "CREATE INDEX session_from ON session (vm, runtime, ifnull(first, started)) WHERE listed OR calls",
    "CREATE INDEX session_till ON session (vm, runtime, ifnull(last, ended)) WHERE listed OR calls",
    "CREATE INDEX session_empty ON session (no) WHERE listed AND NOT calls",
    "CREATE INDEX session_cost ON session (cost_micro + cost_rest / 1000000, no) WHERE calls",
    "CREATE INDEX session_tokens ON session (tokens, no) WHERE calls",
    "CREATE INDEX session_calls ON session (calls, no) WHERE calls",
    "CREATE INDEX usage_session_day ON usage_session (day, session)",
    "CREATE INDEX usage_session_shape ON usage_session (shape, session)",
    "DROP INDEX record_withdrawn",
    "CREATE INDEX record_withdrawn ON record (withdrawn, shape, ts) WHERE withdrawn > 0",
)
SLICES: Final = ("CREATE INDEX slice_model ON slice (level, model) WHERE model IS NOT NULL",)
SEEN: Final = (
    "ALTER TABLE presence ADD COLUMN first INTEGER",
    "ALTER TABLE presence ADD COLUMN last INTEGER",
    """UPDATE presence SET
    first = (SELECT min(ifnull(first, started)) FROM session INDEXED BY session_from
        WHERE session.vm = presence.vm AND session.runtime = presence.runtime AND (session.listed OR session.calls)),
    last = (SELECT max(ifnull(last, ended)) FROM session INDEXED BY session_till
        WHERE session.vm = presence.vm AND session.runtime = presence.runtime AND (session.listed OR session.calls))""",
    "DROP TRIGGER session_shown",
    """CREATE TRIGGER session_shown AFTER UPDATE OF listed, calls ON session
    WHEN (old.listed OR old.calls) != (new.listed OR new.calls)
    BEGIN INSERT INTO presence (vm, runtime, sessions)
    VALUES (new.vm, new.runtime, (new.listed OR new.calls) - (old.listed OR old.calls))
    ON CONFLICT DO UPDATE SET sessions = sessions + excluded.sessions; END""",
)
