"""Parquet: the columns of the CSV with their types; money is ``decimal128(38, 12)``, so no digit is lost.

Needs the ``parquet`` extra (pyarrow). Written in row groups, so memory does not grow with the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Any, Final

from collector.export.records import COLUMNS, DayOf, values
from collector.ledger import Entry
from collector.money import to_decimal

ROW_GROUP: Final = 50_000


def write(entries: Iterable[Entry], day_of: DayOf, out: IO[bytes]) -> int:
    """Write records to ``out``; how many there were. Raises ``ImportError`` without pyarrow."""
    import pyarrow
    from pyarrow import parquet

    schema = _schema(pyarrow)
    stream = iter(entries)
    count = 0
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while group := list(islice(stream, ROW_GROUP)):
            writer.write_table(pyarrow.table(list(_arrays(pyarrow, schema, group, day_of)), schema=schema))
            count += len(group)
    return count


def _schema(pyarrow: Any) -> Any:
    types = {
        "text": pyarrow.string(),
        "count": pyarrow.int64(),
        "flag": pyarrow.bool_(),
        "money": pyarrow.decimal128(38, 12),
    }
    fields = [pyarrow.field(column.name, types[column.kind], metadata={"help": column.help}) for column in COLUMNS]
    return pyarrow.schema(fields, metadata={"vm_usage.export": "1"})


def _arrays(pyarrow: Any, schema: Any, group: list[Entry], day_of: DayOf) -> Iterator[Any]:
    rows = [values(entry, day_of) for entry in group]
    for place, column in enumerate(COLUMNS):
        cells = [row[place] for row in rows]
        if column.kind == "money":
            cells = [None if pico is None else to_decimal(pico) for pico in cells]
        yield pyarrow.array(cells, type=schema.field(place).type)
