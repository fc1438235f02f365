"""ClickHouse's tables as data, and the statements made of them: on one server (or embedded), or per shard of a cluster.

A record stands in one table, ordered by its id and day and replaced by the row with the greater ``version``; reads use
FINAL, so a row that is not merged yet counts once all the same, and as the day is part of the key a window of days
reads its own partitions and parts alone (``clickhouse_days``: what happens to a record whose day changes). On a cluster
records are sharded by id: every version of one record is on one shard, whichever VM or hub sent it. Small tables are
whole on every node. Money is pico-USD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from collector.entries import NAMES
from collector.ledger import DIMENSIONS, Kind
from collector.ledger.fleet_schema import HUB_TABLES
from collector.ledger.schema import Table
from shim.line import TOKEN_CLASSES

TYPES: Final = {
    "text": "String",
    "text?": "Nullable(String)",
    "name": "LowCardinality(String)",
    "name?": "LowCardinality(Nullable(String))",
    "count?": "Nullable(UInt64)",
    "int": "Int64",
    "int?": "Nullable(Int64)",
    "number": "UInt64",
    "big": "UInt128",
    "sum": "Int128",
    "day": "Int32",
    "flag": "Bool",
    "flag?": "Nullable(Bool)",
}
_FLEET_TYPES: Final = {
    "name": "text", "unique": "text", "text!": "text", "text": "text?", "int!": "int", "int": "int?",
}  # fmt: skip
_KIND_TYPES: Final = dict.fromkeys(Kind._fields, "name?") | {
    "usage": "name", "outcome": "name", "cost_status": "name", "counted": "flag",
}  # fmt: skip
_ENTRY_TYPES: Final[Mapping[str, str]] = {
    "id": "text",
    "vm": "name",
    "runtime": "name",
    "source": "name",
    "session_id": "text",
    "ts_ms": "int?",
    **dict.fromkeys(TOKEN_CLASSES, "count?"),
    **_KIND_TYPES,
    "session_ref": "text?",
    "session_source": "name?",
    "attribution": "name?",
    "model": "name?",
    "model_source": "name",
    "upstream": "name?",
    "wire": "name?",
    "service_tier": "name?",
    "grain": "name",
    "parent_session_id": "text?",
    "owner_ms": "int",
    "revision": "int",
    "ended_ms": "int?",
    "http_status": "int?",
    "stream": "flag?",
    "duration_ms": "int?",
    "ttft_ms": "int?",
    "response": "text?",
    "cost_pico": "int?",
    "acu_micro": "int?",
    "rates": "name?",
    "withdrawn": "name?",
}

# Sums of a group: column -> expression over records, in the order of ``Group``'s fields.
SUMS: Final = {
    "calls": "count()",
    **{name: f"ifNull(sum({name}), 0)" for name in TOKEN_CLASSES},
    **{f"known_{name}": f"count({name})" for name in TOKEN_CLASSES},
    "without_tokens": f"countIf({' AND '.join(f'isNull({name})' for name in TOKEN_CLASSES)})",
    "priced": "count(cost_pico)",
    "cost_sum": "ifNull(sum(toInt128(cost_pico)), 0)",
    "acu_known": "count(acu_micro)",
    "acu_sum": "ifNull(sum(toInt128(acu_micro)), 0)",
}


@dataclass(frozen=True, slots=True)
class Store:
    """One table: columns by name, sorting key, the column by which a later row replaces an earlier one, if any.

    ``shard``: the expression by which a cluster spreads it; ``None``: whole on every node. ``part``: partition.
    """

    name: str
    columns: Mapping[str, str]
    order: str
    version: str | None = None
    shard: str | None = None
    part: str | None = None
    indexes: tuple[str, ...] = ()


def _small(table: Table) -> Store:
    columns = {name: _FLEET_TYPES[kind] for name, kind in (one.split() for one in table.columns.split(","))}
    return Store(table.name, {**columns, "written": "number"}, table.key or table.names[0], "written")


MONTH: Final = "toYYYYMM(toDate32(greatest(day, 0)))"
RECORD: Final = Store(
    "record",
    {**{name: _ENTRY_TYPES[name] for name in NAMES}, "day": "day", "session_no": "number", "received": "number",
     "version": "big"},
    order="id, day",
    version="version",
    shard="cityHash64(id)",
    part=MONTH,
    indexes=(
        "INDEX by_session session_no TYPE bloom_filter(0.01) GRANULARITY 4",
        "INDEX by_session_id session_id TYPE bloom_filter(0.01) GRANULARITY 4",
    ),
)  # fmt: skip
# Sums of records that have expired. ``fold``: the fold that took them; it counts once ``fold`` has a row for it.
USAGE_DAY: Final = Store(
    "usage_day",
    {"fold": "number", **{name: "day" if name == "day" else _ENTRY_TYPES[name] for name in DIMENSIONS}, **_KIND_TYPES,
     **dict.fromkeys(SUMS, "sum"), "first_ms": "int?", "last_ms": "int?"},
    order="day, vm, runtime",
    shard="cityHash64(vm)",
    part=MONTH,
)  # fmt: skip
GONE: Final = Store("gone", {"fold": "number", "id": "text"}, order="id, fold", shard="cityHash64(id)")
FOLD: Final = Store("fold", {"no": "number", "written": "number"}, order="no", version="written")
# Days whose sums stand in ``usage_day`` beside their records, under a fold that is none of ``fold``; 0: no more.
SETTLED: Final = Store("settled", {"day": "day", "fold": "number", "written": "number"}, order="day", version="written")
SETTING: Final = Store("setting", {"name": "text", "value": "text", "written": "number"}, "name", "written")
STORES: Final = (RECORD, USAGE_DAY, GONE, FOLD, SETTLED, SETTING, *(_small(table) for table in HUB_TABLES))
LOCAL: Final = "_local"

# A part is on the disk before its insert is acknowledged; a batch that comes twice is known by its token.
SYNCED: Final = {"fsync_after_insert": 1, "fsync_part_directory": 1}
REMEMBERED: Final = 1000


def statements(cluster: str | None = None) -> Iterator[str]:
    """The statements that make every table, in order; harmless where the tables stand."""
    for store in STORES:
        if cluster is None:
            yield _create(store, store.name, "", _engine(store, ""), "non_replicated_deduplication_window")
            continue
        name = local(store, cluster)
        where = f" ON CLUSTER {_quoted(cluster)}"
        yield _create(store, name, where, _engine(store, name), "replicated_deduplication_window")
        if store.shard is not None:
            yield (
                f"CREATE TABLE IF NOT EXISTS {store.name}{where} AS {name}\n"
                f"ENGINE = Distributed({_quoted(cluster)}, currentDatabase(), {name}, {store.shard})"
            )


def local(store: Store, cluster: str | None) -> str:
    """The name of the table that holds a store's rows on each server."""
    return store.name if cluster is None or store.shard is None else store.name + LOCAL


def all_replicas(store: Store, cluster: str) -> str:
    """The table of a store as every replica of a cluster has it, one after the other."""
    return f"clusterAllReplicas({_quoted(cluster)}, currentDatabase(), {local(store, cluster)})"


def _create(store: Store, name: str, where: str, engine: str, window: str) -> str:
    columns = [f"    {column} {TYPES[kind]}" for column, kind in store.columns.items()]
    columns += [f"    {index}" for index in store.indexes]
    settings = SYNCED | {window: REMEMBERED} | ({"index_granularity": 1024} if store is RECORD else {})
    body = ",\n".join(columns)
    partition = f"PARTITION BY {store.part}\n" if store.part else ""
    chosen = ", ".join(f"{key} = {value}" for key, value in settings.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {name}{where} (\n{body}\n)\nENGINE = {engine}\n{partition}"
        f"ORDER BY ({store.order})\nSETTINGS {chosen}"
    )


def _engine(store: Store, replicated_as: str) -> str:
    kind = "MergeTree" if store.version is None else "ReplacingMergeTree"
    arguments = [] if store.version is None else [store.version]
    if not replicated_as:
        return f"{kind}({', '.join(arguments)})"
    # Every node has the whole of a small table, so its path is one for all shards and its replicas are told apart.
    shard, replica = ("{shard}", "{replica}") if store.shard else ("all", "{shard}-{replica}")
    path = f"'/clickhouse/tables/{shard}/{{database}}/{replicated_as}'"
    return f"Replicated{kind}({', '.join([path, _text(replica), *arguments])})"


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _text(value: str) -> str:
    return f"'{value}'"
