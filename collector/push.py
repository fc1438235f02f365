"""From the VM to its hub: new and changed records in the order of the ledger's journal, at least once.

The ledger is the queue. What is kept beside it is a cursor per hub, what the hub refused, and how the last push went. A
hub that is away for weeks costs nothing but the wait; catching up is bounded in rate and memory, one batch at a time.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import httpx
import msgspec
import orjson

from collector.hub.batch import CONTENT_TYPE, MAX_BODY, PATH, VERSION, Answer, Facts, Gap, Head, Refused, encode
from collector.hub.settings import PushSettings
from collector.ledger import Entry
from collector.ledger.sqlite import SqliteLedger
from collector.push_state import PushState, place_of
from collector.secret_file import read_secret
from shim import __version__
from shim.names import ConfigError

BATCH: Final = 1_000
TIMEOUT: Final = httpx.Timeout(60.0, connect=10.0)
# Facts beside the records are gathered this often at most; a VM without records says that it lives as often.
FACTS_SECONDS: Final = 60.0
HEARTBEAT_SECONDS: Final = 300.0
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 300.0
MAX_GAPS: Final = 500
MAX_REFUSED: Final = 10_000


class PushError(Exception):
    """A batch that the hub did not take: one sentence, and how long (seconds) the hub asked to wait."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Pushed:
    """What one batch did: records sent, of them refused, and how many are still to be sent."""

    sent: int
    refused: int
    waiting: int


class Pusher:
    """Pushes one ledger to one hub. Belongs to the thread that opened the ledger."""

    def __init__(self, ledger: SqliteLedger, vm: str, settings: PushSettings, transport: httpx.Client) -> None:
        self._ledger = ledger
        self._vm = vm
        self._settings = settings
        self._http = transport
        self._born = _born(ledger)
        self._facts: tuple[float, Facts] | None = None
        self._said = float("-inf")
        self._batch = BATCH

    def step(self) -> Pushed:
        """Send the next batch; without records only when it is time to say that we live.

        Raises ``PushError``; nothing is lost then, the next step sends the same again.
        """
        cursor = self.cursor
        after, entries = self._ledger.changes(cursor, self._batch)
        waiting = self._ledger.waiting(after)
        if not entries and time.monotonic() - self._said < HEARTBEAT_SECONDS:
            if after != cursor:
                self._keep(after, [])
            return Pushed(0, 0, waiting)
        head = Head(VERSION, self._vm, self._born, cursor, after, round(time.time(), 3), self._told(waiting))
        try:
            answer = self._send(head, entries)
        except PushError as error:
            self._note(str(error), waiting + len(entries))
            raise
        self._batch = min(BATCH, self._batch * 2)
        self._said = time.monotonic()
        self._keep(answer.after, answer.refused)
        waiting = self._ledger.waiting(answer.after)
        self._note(None, waiting)
        return Pushed(len(entries), len(answer.refused), waiting)

    @property
    def cursor(self) -> int:
        """How far the hub has our journal."""
        rows = self._ledger.select("SELECT value FROM setting WHERE name = ?", (self._place,))
        return int(rows[0][0]) if rows else 0

    def start_again(self) -> None:
        """Send everything once more, as if from a new ledger; the hub keeps what it has and takes what it lacks."""
        with self._ledger.transaction() as tx:
            tx.db.execute("DELETE FROM setting WHERE name IN ('born', ?)", (self._place,))
            tx.db.execute("DELETE FROM push_refused")
        self._born = _born(self._ledger)

    @property
    def _place(self) -> str:
        return place_of(self._settings.url)

    def _send(self, head: Head, entries: list[Entry]) -> Answer:
        body = encode(head, entries)
        if len(body) > MAX_BODY and len(entries) > 1:
            self._batch = max(1, len(entries) // 2)
            raise PushError("the batch was too large; it is sent again in halves")
        headers = {"Content-Type": CONTENT_TYPE, "Authorization": f"Bearer {self._token()}"}
        try:
            response = self._http.post(self._settings.url + PATH, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise PushError(f"the hub does not answer ({type(error).__name__}: {error})") from error
        if response.status_code == 413 and len(entries) > 1:
            self._batch = max(1, len(entries) // 2)
        if response.status_code != 200:
            raise PushError(_why(response), _wait_of(response))
        try:
            return msgspec.json.decode(response.content, type=Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise PushError("what answers there is no hub of this version") from error

    def _token(self) -> str:
        """The token as it is now: a new one counts from the next batch on."""
        try:
            return read_secret(self._settings.token_file, "VM_USAGE_HUB_TOKEN_FILE")
        except ConfigError as error:
            raise PushError(str(error)) from error

    def _told(self, waiting: int) -> Facts:
        """Facts beside the records; gathered now and then, since that costs more than a batch."""
        now = time.monotonic()
        if self._facts is None or now - self._facts[0] >= FACTS_SECONDS or not waiting:
            gaps = [Gap(row.boot, row.first_seq, row.last_seq) for row in self._ledger.gaps()[:MAX_GAPS]]
            refused = [Refused(row.reason, row.runtime, row.count) for row in self._ledger.refused()[:MAX_GAPS]]
            self._facts = (now, Facts(__version__, 0, gaps, refused))
        return msgspec.structs.replace(self._facts[1], waiting=waiting)

    def _keep(self, cursor: int, refused: list[tuple[str, str]]) -> None:
        now_ms = int(time.time() * 1000)
        with self._ledger.transaction() as tx:
            tx.db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (self._place, str(cursor)))
            if refused:
                known = tx.db.execute("SELECT count(*) FROM push_refused").fetchone()[0]
                rows = [(record, reason, now_ms) for record, reason in refused[: max(0, MAX_REFUSED - known)]]
                tx.db.executemany("INSERT OR REPLACE INTO push_refused VALUES (?, ?, ?)", rows)

    def _note(self, error: str | None, waiting: int) -> None:
        state = orjson.dumps(asdict(PushState(time.time(), error, waiting))).decode()
        with self._ledger.transaction() as tx:
            tx.db.execute("INSERT OR REPLACE INTO setting VALUES ('push_state', ?)", (state,))


def client(settings: PushSettings) -> httpx.Client:
    """A client that trusts the system's authorities or the hub's own. Raises ``ConfigError``."""
    verify: ssl.SSLContext | bool = True
    if settings.ca_file is not None:
        try:
            verify = ssl.create_default_context(cafile=str(settings.ca_file))
        except OSError as error:
            raise ConfigError(f"VM_USAGE_HUB_CA_FILE {settings.ca_file} cannot be used ({error}): mend it.") from error
    loopback = settings.url.startswith("http://")
    return httpx.Client(timeout=TIMEOUT, verify=verify, trust_env=not loopback, follow_redirects=False)


def backoff(failures: int, asked: float = 0.0, draw: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds to wait after so many failures in a row: grows, is random, and never below what the hub asked for."""
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, 20))
    return max(asked, draw(longest / 2, longest))


def _born(ledger: SqliteLedger) -> int:
    """When this ledger began to push, epoch ms: with a cursor it names a place in the journal of this very ledger."""
    with ledger.transaction() as tx:
        tx.db.execute("INSERT OR IGNORE INTO setting VALUES ('born', ?)", (str(int(time.time() * 1000)),))
        return int(tx.db.execute("SELECT value FROM setting WHERE name = 'born'").fetchone()[0])


def _why(response: httpx.Response) -> str:
    try:
        told: Any = orjson.loads(response.content)["error"]["message"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        told = "no reason given"
    return f"the hub answers {response.status_code}: {str(told)[:200]}"


def _wait_of(response: httpx.Response) -> float:
    """What the hub asks us to wait; a wrong token will not be right in a minute either."""
    asked = response.headers.get("Retry-After", "")
    if asked.isascii() and asked.isdigit():
        return min(float(asked), LONGEST_WAIT)
    return LONGEST_WAIT / 2 if response.status_code in (400, 401, 403, 404, 415) else 0.0
