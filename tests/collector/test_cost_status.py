"""The cost_status of every session of every runtime's fixture: its store read, priced and added up."""

import json

import pytest

from collector.honesty import CAVEATS, Counts
from collector.pricing import Pricer
from collector.runtimes.table import READERS
from tests.collector.priced import BOOK, PRICER
from tests.runtimes.databases import RUNTIMES as DATABASES
from tests.runtimes.databases import build
from tests.runtimes.transcripts import HERE, Read, read_home

FOLDERS = sorted(path.parent.name for path in HERE.glob("*/expected.json"))
# Qwen's own API has no list in the price book, so its models are tokens only until the operator prices them.
NO_LIST = {("qwen_code", "qwen3-coder-plus"): "tokens_only"}
# Captured from a stream, not read from a store.
CAPTURED = "dddd0000-0000-4000-8000-00000000000"
SECOND_HOMES = ("nocfg:", "old:")


def expected(runtime):
    entries = json.loads((HERE / runtime / "expected.json").read_text())["sessions"]
    return {entry["session_id"]: entry for entry in entries}


CASES = [
    pytest.param(runtime, session, entry, id=f"{runtime}-{session}")
    for runtime in FOLDERS
    for session, entry in expected(runtime).items()
    if not session.startswith(CAPTURED)
]


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Session id of expected.json to its records, per runtime."""
    return {runtime: _records(runtime, tmp_path_factory.mktemp(runtime)) for runtime in FOLDERS}


def _records(runtime, folder):
    reader = next(one for one in READERS if one.runtime == runtime)
    if runtime in DATABASES:
        found = Read()
        for source in [one for home in build(runtime, folder) for one in reader.sources(home, {})]:
            found.take(reader, source)
        return found.of
    base = HERE / runtime
    homes = [base] if runtime == "aider" else [base / "home"]
    found, second = read_home(reader, homes[0]), read_home(reader, base / "nocfg")
    return lambda session: found.of(session) or second.of(session)


def _bare(session):
    for prefix in SECOND_HOMES:
        session = session.removeprefix(prefix)
    return session


def _status(records, pricer):
    priced = [pricer.price(record) for record in records]
    return Counts.of(one.status for one in priced if one.counted).status, priced


@pytest.mark.parametrize(("runtime", "session", "entry"), CASES)
def test_a_session_claims_what_is_known_of_its_cost(reads, runtime, session, entry):
    status, priced = _status(reads[runtime](_bare(session)), PRICER)
    assert status == NO_LIST.get((runtime, entry["model"]), entry["cost_status"])
    for one in priced:
        assert (one.caveat is not None) == (one.status == "estimated") or one.status == "partial"
        assert set((one.caveat or "").split(",")) - {""} <= set(CAVEATS)
        assert (one.cost_pico is None) == (one.status in ("tokens_only", "unavailable")) == (one.reason is not None)


@pytest.mark.parametrize("session", list(expected("devin")))
def test_acu_become_dollars_by_a_configured_rate(reads, session):
    entry = expected("devin")[session]["with_rate_usd_per_acu"]
    pricer = Pricer(BOOK, acu_usd=str(entry["rate"]))
    status, priced = _status(reads["devin"](session), pricer)
    assert status == entry["cost_status"]
    assert sum(one.cost_pico or 0 for one in priced) == round(entry["vendor_cost_usd"] * 10**12)
