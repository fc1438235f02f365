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
from collector.query import ALL_RECORDS, Query
from collector.rows import Filter, Page
from tests.fleet.measure import cpu_seconds, forget_peak, peak_mib
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
    """Make ``count`` records of ``vms`` VMs over 90 days, one in fifty twice, and ask before and after days are summed.

    Times are seconds and CPU seconds: the second hardly depends on what else the machine does. Parts are printed on
    standard error as they come. Merging, and sums without FINAL, are tried up to ``TRY_MERGED`` records only.
    """
    ledger = ClickHouseLedger(f"chdb://{folder / 'chdb'}", "UTC")
    found: dict[str, Any] = {"records": count}
    if not ledger.ask("SELECT 1 FROM record LIMIT 1"):
        found["made"] = make(ledger, count, vms)
    found["append_10000"] = append_speed(ledger)
    found["bytes_per_record"] = round(size(ledger) / count, 1)
    found["totals_of_records"] = ask_all(ledger, "total")
    found["summing"] = _timed(lambda: sum_days(ledger))
    found["bytes_of_sums_per_record"] = round(size(ledger, "usage_day") / count, 1)
    found["questions"] = ask_all(ledger)
    if count <= TRY_MERGED:
        found["by model without FINAL, argMax"] = by_argmax(ledger)
        found["merge"] = _timed(lambda: ledger.command("OPTIMIZE TABLE record FINAL"))
        found["questions_merged"] = ask_all(ledger)
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


def ask_all(ledger: ClickHouseLedger, beginning: str = "") -> dict[str, Any]:
    """What each question takes whose name begins so."""
    query = Query(ledger, windows.Calendar(windows.UTC))
    today, week, month = (Filter(query.window(name)) for name in ("today", "7d", "30d"))
    questions: dict[str, Callable[[], Any]] = {
        "total, today": lambda: query.total(today),
        "total, 7d": lambda: query.total(week),
        "total, 30d": lambda: query.total(month),
        "total, all": query.total,
        "summary": query.summary,
        "by day, 30d": lambda: query.aggregates(month),
        "by day, all": query.aggregates,
        "by model, 7d": lambda: query.models(week),
        "by model, all": query.models,
        "runtimes, 7d": lambda: query.runtimes(week),
        "runtimes, all": query.runtimes,
        "vms, 7d": lambda: query.vms(week),
        "vms, all": query.vms,
        "one vm by day": lambda: query.aggregates(Filter(vm="vm-7")),
        "50 sessions": lambda: query.sessions(ALL_RECORDS, Page()),
        "50 sessions, 7d": lambda: query.sessions(week, Page()),
        "50 sessions of one vm": lambda: query.sessions(Filter(vm="vm-7"), Page()),
        "one session": lambda: query.session("ref-1", "vm-7", "picoclaw"),
    }
    found = {}
    for name in (name for name in questions if name.startswith(beginning)):
        found[name] = _timed(questions[name])
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
    vm = Vm(f"late-{time.time_ns()}", 2, "")
    vm.record(10_000)
    return _timed(lambda: ledger.append(vm.truth.values()))


def sum_days(ledger: ClickHouseLedger) -> None:
    """Sum all days that are over, as the hub does while it has nothing else to do."""
    while ledger.settle(ledger.calendar.today(time.time())):
        pass


def size(ledger: ClickHouseLedger, table: str = "record") -> int:
    query = f"SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = '{table}'"
    return int(ledger.ask(query)[0][0])


def _timed(question: Callable[[], Any]) -> dict[str, float]:
    forget_peak()
    began, used = time.monotonic(), cpu_seconds(os.getpid())
    question()
    return {
        "cpu_seconds": round(cpu_seconds(os.getpid()) - used, 2),
        "seconds": round(time.monotonic() - began, 2),
        "peak_mib": round(peak_mib(os.getpid())),
    }
