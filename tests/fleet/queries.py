"""The questions of the API and the page over many records, made inside the embedded engine, and how long each takes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector import windows
from collector.entries import NAMES, flat
from collector.ledger.clickhouse import ClickHouseLedger
from collector.query import Query
from collector.rows import Filter, Page
from tests.fleet.measure import cpu_seconds, peak_mib
from tests.fleet.vm import Vm

CHUNK = 5_000_000
DAYS = 90
TRY_MERGED = 20_000_000
# What the made records have by row number; everything else is as in a simulated VM's line.
BY_NUMBER = {
    "id": "concat('vm-', toString(number % {vms}), '.b-', toString(intDiv(number, {vms}) + 1))",
    "vm": "concat('vm-', toString(number % {vms}))",
    "runtime": "if(number % 3 = 0, 'cursor', 'picoclaw')",
    "model": "['gpt-4o', 'gpt-4o-mini', 'claude-sonnet-4-5', 'gemini-2.5-pro', 'acme-1'][1 + number % 5]",
    "session_id": "concat('ref-', toString(intDiv(number, {vms} * 20)))",
    "session_ref": "concat('ref-', toString(intDiv(number, {vms} * 20)))",
    "ts_ms": "{now} - toInt64((1 - number / {count}) * {days} * 86400000)",
    "input_tokens": "sipHash64(number) % 100000",
    "output_tokens": "sipHash64(number, 1) % 20000",
    "cost_pico": "toInt64(sipHash64(number) % 100000 * 2500000 + sipHash64(number, 1) % 20000 * 10000000)",
}


def time_queries(folder: Path, count: int, vms: int) -> dict[str, Any]:
    """Make ``count`` records of ``vms`` VMs over 90 days, one in fifty twice, and ask.

    Times are seconds and CPU seconds: the second does not depend on what else the machine does. Parts are printed on
    standard error as they come. Merging, and sums without FINAL, are tried up to ``TRY_MERGED`` records only.
    """
    ledger = ClickHouseLedger(f"chdb://{folder / 'chdb'}", "UTC")
    found: dict[str, Any] = {"records": count, "made": make(ledger, count, vms)}
    found["append_10000"] = append_speed(ledger)
    found["bytes_per_record"] = round(size(ledger) / count, 1)
    found["questions"] = ask_all(ledger)
    if count <= TRY_MERGED:
        found["by model without FINAL, argMax"] = by_argmax(ledger)
        found["merge"] = _timed(lambda: ledger.command("OPTIMIZE TABLE record FINAL"))
        found["questions_merged"] = ask_all(ledger)
    found["peak_mib"] = round(peak_mib(os.getpid()))
    ledger.close()
    return found


def make(ledger: ClickHouseLedger, count: int, vms: int) -> dict[str, Any]:
    plain = flat(_a_line())
    now = int(time.time() * 1000)
    columns = ", ".join((*NAMES, "day", "session_no", "received", "version"))
    began = time.monotonic()
    for first in range(0, count, CHUNK):
        last = min(count, first + CHUNK)
        for source in (f"numbers({first}, {last - first})", f"numbers({first}, {(last - first) // 50})"):
            values = [
                BY_NUMBER[name].format(vms=vms, count=count, days=DAYS, now=now)
                if name in BY_NUMBER
                else _sql(plain[name])
                for name in NAMES
            ]
            query = f"""INSERT INTO record ({columns}) SELECT *, toInt32(intDiv(ts_ms, 86400000)),
                sipHash64(vm, runtime, session_id), {now}, 1
                FROM (SELECT {", ".join(f"{value} AS {name}" for name, value in zip(NAMES, values, strict=True))}
                FROM {source})"""
            ledger.command(query)
    rows = ledger.ask("SELECT count() FROM record")[0][0]
    return {"rows": rows, "seconds": round(time.monotonic() - began, 1)}


def _a_line() -> Any:
    vm = Vm("vm", 1, "")
    while not any(entry.source == "log" and entry.cost_pico for entry in vm.truth.values()):
        vm.record(1)
    return next(entry for entry in vm.truth.values() if entry.source == "log" and entry.cost_pico)


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "\\'") + "'"


def ask_all(ledger: ClickHouseLedger) -> dict[str, Any]:
    """What each question takes."""
    query = Query(ledger, windows.Calendar(windows.UTC))
    today = query.window("today")
    questions: dict[str, Callable[[], Any]] = {
        "total, today": lambda: query.total(Filter(today)),
        "total, 7d": lambda: query.total(Filter(query.window("7d"))),
        "total, all": query.total,
        "by day, all": query.aggregates,
        "by model, all": query.models,
        "by vm, all": lambda: ledger.groups(("vm", "runtime"), Filter()),
        "one vm by day": lambda: query.aggregates(Filter(vm="vm-7")),
        "50 sessions of one vm": lambda: query.sessions(Filter(vm="vm-7"), Page()),
        "one session": lambda: query.session("ref-1", vm="vm-7"),
    }
    found = {}
    for name, question in questions.items():
        found[name] = _timed(question)
        print(name, found[name], file=sys.stderr, flush=True)
    return found


def by_argmax(ledger: ClickHouseLedger) -> dict[str, float]:
    """The sums by model without FINAL: the latest version of each id by argMax."""
    query = """SELECT model, count(), sum(input), sum(output), sum(toInt128(cost)) FROM (
        SELECT argMax(model, version) AS model, argMax(input_tokens, version) AS input,
            argMax(output_tokens, version) AS output, argMax(cost_pico, version) AS cost,
            argMax(withdrawn, version) AS gone
        FROM record GROUP BY id) WHERE isNull(gone) GROUP BY model"""
    return _timed(lambda: ledger.ask(query))


def append_speed(ledger: ClickHouseLedger) -> dict[str, float]:
    """What 10,000 new records take beside what is there, in one insert: many VMs pushing at once."""
    vm = Vm("late", 2, "")
    vm.record(10_000)
    return _timed(lambda: ledger.append(vm.truth.values()))


def size(ledger: ClickHouseLedger) -> int:
    query = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'record'"
    return int(ledger.ask(query)[0][0])


def _timed(question: Callable[[], Any]) -> dict[str, float]:
    began, used = time.monotonic(), cpu_seconds(os.getpid())
    question()
    return {
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(cpu_seconds(os.getpid()) - used, 2),
    }
