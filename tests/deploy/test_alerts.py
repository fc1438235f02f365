"""Alerts and dashboard speak of metrics that exist, fire where they should, and are explained."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from collector.metrics import FAMILIES
from shim import eligibility
from shim.counters import DURATION
from shim.counters import FAMILIES as SHIM_FAMILIES
from shim.metrics import GAUGES
from tests.deploy.tools import DEPLOY, ROOT, needs, said

RULES = DEPLOY / "alerts.yaml"
METRIC = re.compile(r"\busage_[a-z0-9_]+")
KNOWN = (
    {f"{family.metric}_total" for family in SHIM_FAMILIES}
    | {shown for _, shown, _ in GAUGES}
    | {f"{DURATION.metric}_{part}" for part in ("bucket", "count", "sum")}
    | {family.name + "_total" * family.counter for family in FAMILIES}
    | {"usage_shim_info", "usage_shim_start_time_seconds", "usage_shim_resident_memory_bytes"}
)


def alerts() -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@needs("promtool")
def test_rules_are_valid() -> None:
    said("promtool", "check", "rules", RULES)


@needs("promtool")
def test_each_alert_fires_where_it_should_and_none_where_all_is_well(tmp_path: Path) -> None:
    cases = (ROOT / "tests/deploy/alerts_test.yaml").read_text()
    (tmp_path / "cases.yaml").write_text(cases.replace("[ALERTS]", f"[{RULES}]"))
    said("promtool", "test", "rules", tmp_path / "cases.yaml")
    assert [rule["alert"] for rule in alerts() if rule["alert"] not in cases] == []


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_metrics_that_exist_and_is_explained(rule: dict[str, str]) -> None:
    assert set(METRIC.findall(rule["expr"])) <= KNOWN
    assert f"### {rule['alert']}\n" in (DEPLOY / "README.md").read_text()


def test_alerts_name_reasons_that_exist() -> None:
    (expr,) = [rule["expr"] for rule in alerts() if rule["alert"] == "UsageCallsNotMetered"]
    named = re.search(r'reason=~"([^"]*)"', expr)
    assert named is not None
    assert set(named[1].split("|")) <= {value for value in vars(eligibility).values() if isinstance(value, str)}


def test_the_dashboard_shows_metrics_that_exist() -> None:
    board = json.loads((DEPLOY / "dashboard.json").read_text())
    shown = {name for panel in board["panels"] for one in panel["targets"] for name in METRIC.findall(one["expr"])}
    assert shown <= KNOWN
    assert all(panel["description"] for panel in board["panels"])
