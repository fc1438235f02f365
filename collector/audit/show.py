"""An ``Audit`` as JSON and as text that fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from collector.audit.review import Audit, Boot, Finding
from shim.line import TOKEN_CLASSES

COLUMNS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


def as_json(audit: Audit) -> dict[str, Any]:
    """Facts, totals and findings as one JSON object; unknown counts are ``null``."""
    return {
        "clean": audit.clean,
        "files": audit.files,
        "lines": audit.lines,
        "bytes": audit.bytes,
        "rows": [
            {"day": day, "model": model, "calls": total.calls, "calls_without_usage": total.without_usage}
            | dict(zip(TOKEN_CLASSES, total.tokens, strict=True))
            for (day, model), total in sorted(audit.totals.items(), key=_order)
        ],
        "facts": {
            "vms": sorted({boot.vm for boot in audit.boots.values()}),
            "boots": [_boot(name, boot) for name, boot in sorted(audit.boots.items())],
            "restarts": audit.restarts,
            "interrupted": audit.outcomes.get("interrupted", 0),
            "outcomes": dict(audit.outcomes),
            "waiting": audit.waiting,
        },
        "findings": {
            "quarantine": {reason: _finding(found) for reason, found in audit.quarantine.items()},
            "suspicious": {what: _finding(found) for what, found in audit.suspicious.items()},
            "unknown_keys": {key: _finding(found) for key, found in audit.unknown_keys.items()},
            "duplicates": audit.duplicates,
            "id_clash": audit.clashes,
            "gaps": [
                {"vm": gap.vm, "boot": gap.boot, "first_seq": gap.first_seq, "last_seq": gap.last_seq}
                | {"lines": gap.lines}
                for gap in audit.gaps
            ],
            "unreadable": audit.unreadable,
        },
    }


def print_text(audit: Audit, console: Console) -> None:
    """Totals as a table, then facts, then findings with where they are."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("day", no_wrap=True)
    table.add_column("model", overflow="fold")
    for title in ("calls", "input", "read", "write", "output"):
        table.add_column(title, justify="right")
    for (day, model), total in sorted(audit.totals.items(), key=_order):
        counts = dict(zip(TOKEN_CLASSES, total.tokens, strict=True))
        table.add_row(day, model or "unknown", f"{total.calls:,}", *(_count(counts[name]) for name in COLUMNS))
    if audit.totals:
        console.print(table)
    for line in _facts(audit):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    findings = list(_findings(audit))
    console.print("\nNo findings." if not findings else "\nFindings:", style="bold")
    for line in findings:
        console.print("  " + line, markup=False, highlight=False, soft_wrap=True)


def _facts(audit: Audit) -> Iterator[str]:
    outcomes = ", ".join(f"{count:,} {name}" for name, count in audit.outcomes.most_common())
    starts = len(audit.boots)
    yield f"\n{audit.lines:,} lines in {audit.files} files, {starts} starts of a shim, {audit.restarts} restarts"
    if outcomes:
        yield f"calls: {outcomes}"
    if audit.waiting:
        yield f"{audit.waiting} unfinished last line, still being written or cut off"


def _findings(audit: Audit) -> Iterator[str]:
    for path, reason in audit.unreadable.items():
        yield f"{path} could not be read to its end: {reason}"
    for reason, found in audit.quarantine.items():
        yield f"{found.count:,} lines are no usage lines ({reason}){_where(found)}"
    for what, found in audit.suspicious.items():
        yield f"{found.count:,} suspicious strings in {what}{_where(found)}"
    for key, found in audit.unknown_keys.items():
        yield f"{found.count:,} lines have the unknown key {key!r}{_where(found)}"
    if audit.duplicates:
        yield f"{audit.duplicates:,} lines are there twice (the same id); counted once"
    if audit.clashes:
        yield f"{audit.clashes:,} lines have the id of another call (a restored snapshot); each counted as its own"
    for gap in audit.gaps:
        yield f"{gap.lines:,} lines are missing: {gap.boot}-{gap.first_seq} to {gap.last_seq} of {gap.vm}"


def _where(found: Finding) -> str:
    places = ", ".join(f"{path}:{offset}" for path, offset in found.examples)
    return f" at byte {places}{' and more' if found.count > len(found.examples) else ''}"


def _finding(found: Finding) -> dict[str, Any]:
    examples = [{"file": path, "offset": offset} for path, offset in found.examples]
    return {"count": found.count, "examples": examples}


def _boot(name: str, boot: Boot) -> dict[str, Any]:
    first, last = (
        datetime.fromtimestamp(ts, UTC).isoformat() if 0 < ts < 1e11 else None for ts in (boot.first, boot.last)
    )
    return {"boot": name, "vm": boot.vm, "first": first, "last": last, "lines": sum(b - a + 1 for a, b in boot.seqs)}


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _order(item: tuple[tuple[str, str | None], Any]) -> tuple[str, str]:
    return item[0][0], item[0][1] or ""
