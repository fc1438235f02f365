"""Writes what is derived from tables in code: blocks of README.md and deploy/README.md, and files in deploy/default.

``python deploy/generate.py`` writes them, ``--check`` says which are stale (exit 1); a test runs the check. A block
stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``, NAME being a key of ``BLOCKS``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from collector.honesty import BASES, CAVEATS, STATES
from collector.metrics import FAMILIES
from collector.runtimes.table import FACTS
from shim.counters import DURATION
from shim.counters import FAMILIES as SHIM_FAMILIES
from shim.metrics import GAUGES
from shim.names import SETTINGS, Setting

ROOT = Path(__file__).parent.parent

DEFAULTS = {
    "usage-shim": ("shim", "the shim (usage-shim.service)"),
    "usage-collector": ("collector", "the collector of this VM (usage-collector.service)"),
    "usage-hub": ("hub", "the hub (usage-hub.service)"),
}
# Set by the units themselves: a value here would point the two services at different places.
SET_BY_UNITS = frozenset({"VM_USAGE_STATE"})


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def settings() -> str:
    return table(
        ("variable", "default", "read by", "meaning"),
        [(f"`{s.name}`", s.default, s.read_by.replace(" ", ", "), s.help) for s in SETTINGS],
    )


def states() -> str:
    return table(("`cost_status`", "when", "what it promises"), [(f"`{s.name}`", s.when, s.promise) for s in STATES])


def bases() -> str:
    return table(("`cost_basis`", "what kind of money"), [(f"`{name}`", text) for name, text in BASES.items()])


def caveats() -> str:
    return table(("`cost_caveat`", "meaning"), [(f"`{name}`", text) for name, text in CAVEATS.items()])


def runtimes() -> str:
    head = ("runtime", "where", "variables", "records", "input includes cache", "reasoning in output", "cost")
    rows = [
        (
            f"`{f.runtime}`",
            f.paths,
            f.variables,
            f.aggregation,
            f.input_includes_cache,
            f.reasoning_in_output,
            f"{f.cost_field} ({f.cost_unit}, {f.cost_basis})" if f.cost_field not in ("", "-", "none") else "none",
        )
        for f in FACTS
    ]
    return table(head, rows)


def shim_metrics() -> str:
    families = [(f"{f.metric}_total", ", ".join(f.labels), f.help) for f in SHIM_FAMILIES]
    histogram = (DURATION.metric, "le", f"{DURATION.help} A histogram.")
    return metrics([*families, histogram, *((shown, "", about) for _, shown, about in GAUGES)])


def collector_metrics() -> str:
    return metrics([(f.name + "_total" * f.counter, ", ".join(f.labels), f.help) for f in FAMILIES])


def metrics(rows: Iterable[tuple[str, str, str]]) -> str:
    return table(("metric", "labels", "what it counts"), [(f"`{name}`", labels, text) for name, labels, text in rows])


BLOCKS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "states": states,
    "bases": bases,
    "caveats": caveats,
    "runtimes": runtimes,
    "shim-metrics": shim_metrics,
    "collector-metrics": collector_metrics,
}


def default_file(title: str, chosen: Iterable[Setting]) -> str:
    """An environment file for systemd: every variable with its meaning, commented out."""
    head = f"# Settings of {title}. KEY=value, no expansion, no quotes needed.\n# A commented line shows the default.\n"
    parts = [f"\n# {s.help}\n# Default: {s.default}\n#{s.name}=\n" for s in chosen if s.name not in SET_BY_UNITS]
    return head + "".join(parts)


def filled(page: str) -> str:
    """A page with its blocks as they are now."""
    for name, block in BLOCKS.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = page.partition(start)
        _, found, after = rest.partition(end)
        if found:
            page = f"{before}{start}\n{block()}\n{end}{after}"
    return page


def wanted() -> dict[Path, str]:
    """Every derived file with its text."""
    files = {page: filled(page.read_text()) for page in (ROOT / "README.md", ROOT / "deploy/README.md")}
    for file, (reader, title) in DEFAULTS.items():
        chosen = [s for s in SETTINGS if reader in s.read_by.split()]
        files[ROOT / "deploy/default" / file] = default_file(title, chosen)
    return files


def main() -> int:
    stale = [path for path, text in wanted().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run python deploy/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted()[path])
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
