"""The SQLite ledger's tables as data, and the DDL made of them.

A record is small because what repeats is numbered: ``shape`` (who made the call, with what, how), ``kind`` (what its
numbers are worth) and ``session``. A usage line's id is ``boot << 40 | seq``, so that lines are inserted in order; a
store's record has boot 0 and finds its number by the 16-byte hash of its key. Rollups use the same numbers. Times are
epoch ms, ``day`` is a local day number (``UNDATED`` where the source knows no time), money is pico-USD, in sums split
into whole micro-USD and the rest, because a 64-bit sum of pico-USD would overflow at 9.2 million USD.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shim.line import TOKEN_CLASSES

SEQ_BITS: Final = 40
UNDATED: Final = -(2**31)
MICRO: Final = 10**6

# ``record.withdrawn``: why a record counts nowhere. TWIN: a line of a call that a store has; METERED: a stand-in for
# which a line turned up; TAKEN_BACK: what its own store has elsewhere by now (``Record.taken_back``).
COUNTS: Final = 0
TWIN: Final = 1
METERED: Final = 2
TAKEN_BACK: Final = 3
WITHDRAWN: Final = {TWIN: "twin", METERED: "metered", TAKEN_BACK: "taken_back"}


# Types as the tables below write them; ``!`` forbids NULL.
TYPES: Final = {
    "id": "INTEGER PRIMARY KEY",
    "name": "TEXT PRIMARY KEY",
    "unique": "TEXT NOT NULL UNIQUE",
    "int": "INTEGER",
    "int!": "INTEGER NOT NULL",
    "sum!": "INTEGER NOT NULL DEFAULT 0",
    "text": "TEXT",
    "text!": "TEXT NOT NULL",
    "blob!": "BLOB NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what it is for, its columns (``name type``, comma-separated), the columns it is clustered by."""

    name: str
    about: str
    columns: str
    key: str = ""
    unique: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(column.split()[0] for column in self.columns.split(","))

    def ddl(self) -> str:
        """The statement that creates the table, STRICT."""
        parts = [f"{name} {TYPES[kind]}" for name, kind in (column.split() for column in self.columns.split(","))]
        if self.key:
            parts.append(f"PRIMARY KEY ({self.key})")
        if self.unique:
            parts.append(f"UNIQUE ({self.unique})")
        return f"CREATE TABLE {self.name} ({', '.join(parts)}) STRICT{', WITHOUT ROWID' if self.key else ''}"


# Sums of a rollup: column -> expression over records. Every one can be taken back by subtraction.
SUMS: Final[dict[str, str]] = {
    "calls": "count(*)",
    **{name: f"ifnull(sum({name}), 0)" for name in TOKEN_CLASSES},
    **{f"known_{name}": f"count({name})" for name in TOKEN_CLASSES},
    "without_tokens": f"count(*) - count(coalesce({', '.join(TOKEN_CLASSES)}))",
    "priced": "count(cost)",
    "cost_micro": f"ifnull(sum(cost / {MICRO}), 0)",
    "cost_rest": f"ifnull(sum(cost % {MICRO}), 0)",
    "acu_known": "count(acu)",
    "acu": "ifnull(sum(acu), 0)",
}
_SUMS: Final = ", ".join(f"{name} int!" for name in SUMS)
_TOKENS: Final = ", ".join(f"{name} int" for name in TOKEN_CLASSES)

SHAPE: Final = (
    "vm",
    "runtime",
    "source",
    "model",
    "model_source",
    "upstream",
    "wire",
    "service_tier",
    "grain",
    "session_source",
    "attribution",
)
SLICE: Final = ("vm", "runtime", "source", "model", "upstream")
KIND: Final = (
    "usage",
    "outcome",
    "cost_status",
    "cost_source",
    "cost_basis",
    "cost_caveat",
    "reason",
    "counted",
)

TABLES: Final = (
    Table("setting", "Facts of the whole ledger: its time zone.", "name name, value text!"),
    Table(
        "shape",
        "Who made a call, with what, how it was seen.",
        f"no id, {', '.join(f'{name} text' for name in SHAPE)}",
    ),
    Table(
        "kind",
        "What a record's numbers are worth.",
        f"no id, {', '.join(f'{name} text' for name in KIND[:-1])}, counted int!",
    ),
    Table("rates", "Rates that records were priced with, as canonical JSON.", "no id, id unique, data text!"),
    Table("boot", "Starts of shims, by name.", "no id, name unique, vm text!"),
    Table(
        "seen",
        "Runs of seq that arrived, per boot: what is between them is lost.",
        "boot int!, first int!, last int!",
        key="boot, first",
    ),
    Table(
        "session",
        "Sessions by vm, runtime and the source's own id. listed: a store names it. first, last, last_model and calls "
        "and the sums after it are those of its records, started, ended and model the store's own.",
        "no id, vm text!, runtime text!, session_id text!, listed int!, started int, ended int, model text, "
        "model_source text!, parent text, first int, last int, last_model text, "
        "last_model_source text, last_model_at int, calls int!, recency int, "
        "tokens sum!, cost_micro sum!, cost_rest sum!",
        unique="vm, runtime, session_id",
    ),
    Table(
        "presence",
        "How many sessions there are to be shown (a trigger on session counts them), and from when till when.",
        "vm text!, runtime text!, sessions int!, first int, last int",
        key="vm, runtime",
    ),
    Table(
        "reference",
        "Opaque references that usage lines have for sessions that a store lists.",
        "vm text!, runtime text!, reference text!, session int!",
        key="vm, runtime, reference",
    ),
    Table(
        "record",
        "One call, turn or session from exactly one source. ref: the session row of a line's opaque reference.",
        f"id id, ts int, day int!, shape int!, kind int!, session int!, ref int, {_TOKENS}, cost int, rates int, "
        "acu int, http_status int, stream int, duration_ms int, ttft_ms int, response text, ended int, withdrawn int!",
    ),
    Table(
        "vendor",
        "Keys of stores' records; owner (epoch ms) and revision decide between two copies.",
        "key blob!, id int!, owner int!, revision int!",
        key="key",
    ),
    Table(
        "copy",
        "Sessions (and through them homes) that hold a copy of a record, ts, that another session paid for.",
        "key blob!, session int!, ts int",
        key="key, session",
    ),
    Table(
        "slice",
        "What a rollup over a level (``spans.LEVELS``) is by; NULL where the level has no such dimension.",
        f"no id, level int!, {', '.join(f'{name} text' for name in SLICE)}",
    ),
    Table("shape_slice", "Into which slices a shape's records are summed.", "shape int!, slice int!", "shape, slice"),
    Table(
        "usage_span",
        "Rollup by slice and span of days: block is day >> grain (``spans.GRAINS``).",
        f"slice int!, grain int!, block int!, kind int!, {_SUMS}",
        key="slice, grain, block, kind",
    ),
    Table(
        "usage_session",
        "Rollup by session and day.",
        f"session int!, day int!, shape int!, kind int!, {_SUMS}",
        key="session, day, shape, kind",
    ),
    Table(
        "turn",
        "Assistant turns of token-blind runtimes, by which usage lines find their session. placeholder: the record "
        "that stands for the call while no line does.",
        "vm text!, runtime text!, ts int!, session int!, model text, placeholder int!",
        key="vm, runtime, ts, session",
    ),
    Table(
        "evidence",
        "Token-bearing store records of token-blind runtimes: kept, never added.",
        f"key blob!, vm text!, runtime text!, session_id text!, ts int, model text, {_TOKENS}",
        key="key",
    ),
    Table(
        "refusal",
        "What was refused, counted; examples is a JSON list of ids.",
        "reason text!, runtime text!, vm text!, count int!, first int, last int, examples text!",
        key="reason, runtime, vm",
    ),
    Table(
        "quarantine",
        "Lines that are no usage lines, by the log they stand in (hash of its first line) and offset. line: the id "
        "that their bytes still tell.",
        "head blob!, offset int!, path text!, reason text!, at int!, line text",
        key="head, offset",
    ),
    Table(
        "log",
        "Followed logs: how far each file was read (offset in the text, decompressed) and what stood before that.",
        "head blob!, dev int!, ino int!, path text!, size int!, mtime int!, offset int!, tail blob!, skipping int!, "
        "length int!, read_at int!, error text",
        key="head, dev, ino",
    ),
    Table(
        "store",
        "Runtime stores: what they looked like when last read, and the reader's state.",
        "path name, runtime text!, stamp text!, state text, read_at int, error text",
    ),
    Table("change", "Journal: runs of record ids in order of change; a push reads it.", "no id, first int!, last int!"),
    Table(
        "estimate",
        "Later prices of records, beside the first, dated (reprice).",
        "record int!, made_at int!, cost int, kind int!, rates int",
        key="record, made_at",
    ),
)
# What sessions are sorted by, of their own sums.
TOTALS: Final = {"cost": f"cost_micro + cost_rest / {MICRO}", "tokens": "tokens", "calls": "calls"}
BY_NAME: Final = {table.name: table for table in TABLES}
RECORD: Final = BY_NAME["record"].names

INDEXES: Final = (
    f"CREATE UNIQUE INDEX shape_all ON shape ({', '.join(f'ifnull({name}, char(0))' for name in SHAPE)})",
    f"CREATE UNIQUE INDEX kind_all ON kind ({', '.join(f'ifnull({name}, char(0))' for name in KIND)})",
    "CREATE INDEX record_ts ON record (ts)",
    "CREATE INDEX record_session ON record (session, ts)",
    "CREATE INDEX record_withdrawn ON record (withdrawn, shape, ts) WHERE withdrawn > 0",
    "CREATE INDEX copy_session ON copy (session, ts)",
    "CREATE INDEX record_ref ON record (ref) WHERE ref != session",
    "CREATE UNIQUE INDEX vendor_id ON vendor (id)",
    "CREATE INDEX session_from ON session (vm, runtime, ifnull(first, started)) WHERE listed OR calls",
    "CREATE INDEX session_till ON session (vm, runtime, ifnull(last, ended)) WHERE listed OR calls",
    "CREATE INDEX session_empty ON session (no) WHERE listed AND NOT calls",
    "CREATE INDEX session_recency ON session (recency, no) WHERE listed OR calls",
    f"CREATE INDEX session_cost ON session ({TOTALS['cost']}, no) WHERE calls",
    f"CREATE INDEX session_tokens ON session ({TOTALS['tokens']}, no) WHERE calls",
    f"CREATE INDEX session_calls ON session ({TOTALS['calls']}, no) WHERE calls",
    f"CREATE UNIQUE INDEX slice_all ON slice (level, {', '.join(f'ifnull({name}, char(0))' for name in SLICE)})",
    "CREATE INDEX slice_model ON slice (level, model) WHERE model IS NOT NULL",
    "CREATE INDEX usage_span_empty ON usage_span (slice) WHERE calls = 0",
    "CREATE INDEX usage_session_day ON usage_session (day, session)",
    "CREATE INDEX usage_session_shape ON usage_session (shape, session)",
)
_SHOWN: Final = "({0}.listed OR {0}.calls)"
_OLD, _NEW = _SHOWN.format("old"), _SHOWN.format("new")
TRIGGERS: Final = (
    f"""CREATE TRIGGER session_shown AFTER UPDATE OF listed, calls ON session WHEN {_OLD} != {_NEW}
    BEGIN INSERT INTO presence (vm, runtime, sessions) VALUES (new.vm, new.runtime, {_NEW} - {_OLD})
    ON CONFLICT DO UPDATE SET sessions = sessions + excluded.sessions; END""",
)

_ID: Final = f"boot.name || '-' || (record.id & {2**SEQ_BITS - 1})"
# For people with the sqlite3 shell: every counted record with its names.
VIEW: Final = f"""CREATE VIEW call AS SELECT
    CASE WHEN boot.no IS NULL THEN lower(hex(vendor.key)) ELSE {_ID} END AS id,
    datetime(record.ts / 1000.0, 'unixepoch') AS at, session.session_id, {", ".join(f"shape.{name}" for name in SHAPE)},
    {", ".join(f"record.{name}" for name in TOKEN_CLASSES)}, record.cost / 1e12 AS cost_usd,
    {", ".join(f"kind.{name}" for name in KIND[:-1])}
    FROM record JOIN shape ON shape.no = record.shape JOIN kind ON kind.no = record.kind
    JOIN session ON session.no = record.session LEFT JOIN boot ON boot.no = record.id >> {SEQ_BITS}
    LEFT JOIN vendor ON vendor.id = record.id WHERE record.withdrawn = 0"""


def statements() -> Iterator[str]:
    """Every statement that makes an empty ledger."""
    for table in TABLES:
        yield table.ddl()
    yield from INDEXES
    yield from TRIGGERS
    yield VIEW
