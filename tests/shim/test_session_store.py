"""The table that sessions are known by: bounded, shared, outliving its process, and never wrong about a torn entry."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.conversation import SHAPES
from shim.identity import reference
from shim.session import Sessions
from shim.session_store import PLACE_SIZE, SIZE, WAYS, SessionStore, open_store
from tests.shim.lines import Events

KEY = b"k" * 32
KEYS = st.binary(min_size=16, max_size=16)
SESSIONS = st.text("abcdefgh234567", min_size=24, max_size=24) | st.just("")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sessions.map"


def same_set(number: int) -> bytes:
    """Hashes that all have the same four places."""
    return number.to_bytes(4, "little") + bytes(12)


def test_what_was_put_is_there_after_a_restart(path: Path) -> None:
    SessionStore(path).put(b"k" * 16, "s" * 24, 1.0)
    assert SessionStore(path).get(b"k" * 16) == "s" * 24
    assert SessionStore(path).get(b"x" * 16) is None


def test_siblings_see_each_others_entries(path: Path) -> None:
    one, other = SessionStore(path), SessionStore(path)
    one.put(b"k" * 16, "s" * 24, 1.0)
    assert other.get(b"k" * 16) == "s" * 24


def test_the_file_is_ours_alone_and_never_grows(path: Path) -> None:
    store = SessionStore(path)
    for number in range(1, 500):
        store.put(number.to_bytes(16, "big"), "s" * 24, number)
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (SIZE, 0o600)


def test_of_too_many_in_one_set_the_oldest_makes_way(path: Path) -> None:
    store = SessionStore(path)
    for number in range(1, WAYS + 2):
        store.put(same_set(number), f"{number:024}", number)
    kept = [store.get(same_set(number)) for number in range(1, WAYS + 2)]
    assert kept == [None, *(f"{number:024}" for number in range(2, WAYS + 2))]


@settings(max_examples=50)
@given(st.dictionaries(KEYS, SESSIONS, max_size=8), st.integers(1, 2**31))
def test_the_last_value_counts(tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, str], now: int) -> None:
    store = SessionStore(tmp_path_factory.getbasetemp() / "property.map")
    for key, session in entries.items():
        store.put(key, "z" * 24, now)
        store.put(key, session, now + 1)
        assert store.get(key) == session


def test_a_torn_entry_is_no_entry(path: Path) -> None:
    store = SessionStore(path)
    store.put(b"k" * 16, "s" * 24, 1.0)
    data = bytearray(path.read_bytes())
    at = data.find(b"k" * 16)
    assert at % PLACE_SIZE == 0
    data[at + 20] ^= 1
    path.write_bytes(data)
    assert SessionStore(path).get(b"k" * 16) is None


@pytest.mark.parametrize("damage", [b"", b"garbage" * 100, b"\xff" * SIZE])
def test_a_damaged_file_is_an_empty_table(path: Path, damage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(damage)
    store = SessionStore(path)
    assert store.get(b"k" * 16) is None
    store.put(b"k" * 16, "s" * 24, 1.0)
    assert store.get(b"k" * 16) == "s" * 24


def test_without_a_folder_there_is_no_table_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    log = Events()
    assert open_store(tmp_path / "state", log) is None
    assert log.said == ["sessions_not_durable"]


def _write(path: Path, number: int) -> int:
    store = SessionStore(path)
    wrong = 0
    for turn in range(2000):
        key = same_set(turn % 3)
        store.put(key, f"{number}{turn % 3}" * 12, turn)
        found = store.get(key)
        wrong += found is not None and found not in {f"{n}{turn % 3}" * 12 for n in range(4)}
    return wrong


def test_processes_that_write_one_set_at_once_never_read_a_mixture(path: Path) -> None:
    SessionStore(path)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.starmap(_write, [(path, number) for number in range(4)]) == [0, 0, 0, 0]


class TestSessionsOverARestart:
    def identify(self, path: Path, body: dict[str, object], wire: str = "openai-chat") -> str:
        assert wire in SHAPES
        sessions = Sessions(KEY, store=SessionStore(path))
        session, _ = sessions.identify("picoclaw", "openai", wire, {}, body, 0.0)
        sessions.answered(session, reference(KEY, "response", f"answer to {body.get('input')}"))
        return session

    def test_a_compacted_conversation_goes_on(self, path: Path) -> None:
        history = [{"role": "user", "content": f"question {number}"} for number in range(6)]
        first = self.identify(path, {"messages": history[:4]})
        assert self.identify(path, {"messages": history[2:5]}) == first
        assert self.identify(path, {"messages": history[2:6]}) == first
        assert self.identify(path, {"messages": [{"role": "user", "content": "another"}]}) != first

    def test_a_chain_of_responses_goes_on(self, path: Path) -> None:
        first = self.identify(path, {"input": "one"}, "openai-responses")
        chained = {"input": "two", "previous_response_id": "answer to one"}
        assert self.identify(path, chained, "openai-responses") == first
        further = {"input": "three", "previous_response_id": "answer to two"}
        assert self.identify(path, further, "openai-responses") == first

    def test_no_content_is_in_the_file(self, path: Path) -> None:
        self.identify(path, {"messages": [{"role": "user", "content": "CANARY"}, {"role": "user", "content": "more"}]})
        data = path.read_bytes()
        assert b"CANARY" not in data
        assert data.strip(b"\0")
