"""The one thread that writes: batches that wait are checked and made durable together, in one commit or one insert.

Nothing is acknowledged before that. How much may wait is bounded; beyond it a VM is asked to come again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import structlog

from collector.hub.accept import accept
from collector.hub.batch import Answer, BatchError, Head, decode
from collector.hub.fleet import Delivery, FleetLedger, TokenStore
from collector.hub.tokens import Token, digest_of
from collector.retention import Retention

log = structlog.get_logger()

MAX_WAITING: Final = 256
# One commit takes what waits, up to so many records.
GROUP: Final = 20_000
TOKEN_SECONDS: Final = 5.0
# Without batches there is upkeep to be thought of now and then.
IDLE_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 3600.0
MAX_TOKENS: Final = 50_000


@dataclass(slots=True)
class Waiting:
    """A request body that waits for its turn."""

    token: Token
    body: bytes
    done: Future[tuple[Answer, int]] = field(default_factory=Future)


class Writer:
    """Owns the stores, which belong to its thread and are opened there; ``start`` raises what that raises."""

    def __init__(
        self,
        open_store: Callable[[], FleetLedger],
        open_tokens: Callable[[], TokenStore],
        retention: Retention,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open = open_store
        self._open_tokens = open_tokens
        self._retention = retention
        self._clock = clock
        self._next_settling = float("-inf")
        self._queue: queue.Queue[Waiting | Callable[[TokenStore], None] | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._opened: Future[None] = Future()
        self._tokens: dict[str, tuple[float, Token | None]] = {}

    def start(self) -> None:
        """Open the store and begin. Raises ``LedgerError`` where it cannot be used."""
        self._thread.start()
        self._opened.result()

    def alive(self) -> bool:
        """Whether batches are still taken."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Finish what waits, then close the store."""
        self._queue.put(None)
        self._thread.join()

    def submit(self, token: Token, body: bytes) -> Future[tuple[Answer, int]]:
        """Hand a body in: what its VM is told, and how many records it held. Raises ``queue.Full``."""
        waiting = Waiting(token, body)
        self._queue.put_nowait(waiting)
        return waiting.done

    def token(self, clear: str) -> Future[Token | None]:
        """The token that a request bears, if it is known here. Raises ``queue.Full``."""
        digest = digest_of(clear)
        found: Future[Token | None] = Future()
        at, known = self._tokens.get(digest, (0.0, None))
        if known is not None and time.monotonic() - at < TOKEN_SECONDS:
            found.set_result(known)
            return found

        def look(store: TokenStore) -> None:
            if not found.set_running_or_notify_cancel():
                return
            try:
                token = store.token(digest)
            except Exception as error:
                found.set_exception(error)
                return
            if len(self._tokens) >= MAX_TOKENS:
                self._tokens.clear()
            self._tokens[digest] = (time.monotonic(), token)
            found.set_result(token)

        self._queue.put_nowait(look)
        return found

    def _run(self) -> None:
        try:
            store, tokens = self._open(), self._open_tokens()
        except Exception as error:  # handed to start(), which raises it
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        try:
            while self._turn(store, tokens):
                self._keep_up(store)
        finally:
            store.close()
            tokens.close()

    def _turn(self, store: FleetLedger, tokens: TokenStore) -> bool:
        """Take what waits; ``False`` when it is time to stop."""
        group: list[tuple[Waiting, Delivery]] = []
        records, going = 0, True
        try:
            item = self._queue.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return True
        while True:
            if item is None:
                going = False
            elif isinstance(item, Waiting):
                if (delivery := self._read(item)) is not None:
                    group.append((item, delivery))
                    records += len(delivery.entries) + 1
            else:
                item(tokens)
            if not going or records >= GROUP:
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        self._commit(store, group)
        return going

    def _keep_up(self, store: FleetLedger) -> None:
        try:
            self._retention.turn(store)
            self._settle(store)
        except Exception:  # what was not done now is done an hour later
            log.exception("upkeep_failed")

    def _settle(self, store: FleetLedger) -> None:
        now = self._clock()
        if now >= self._next_settling:
            count = store.settle(store.calendar.today(now))
            self._next_settling = now + (IDLE_SECONDS if count else SETTLE_SECONDS)
            if count:
                log.info("days_summed", count=count)

    def _read(self, waiting: Waiting) -> Delivery | None:
        """A body as a delivery; ``None`` where its sender has gone, or was told what is wrong with it."""
        if not waiting.done.set_running_or_notify_cancel():
            return None
        now_ms = int(self._clock() * 1000)
        try:
            head, lines = decode(waiting.body)
            _own(head, waiting.token)
            entries, refused = accept(lines, waiting.token.names, now_ms)
            return Delivery(head, entries, refused, now_ms)
        except BatchError as error:
            waiting.done.set_exception(error)
        except Exception as error:
            log.exception("batch_failed", vm=waiting.token.vm)
            waiting.done.set_exception(error)
        return None

    def _commit(self, store: FleetLedger, group: list[tuple[Waiting, Delivery]]) -> None:
        if not group:
            return
        try:
            answers = store.take([delivery for _, delivery in group])
        except Exception as error:
            log.exception("commit_failed", batches=len(group))
            for waiting, _ in group:
                waiting.done.set_exception(error)
            return
        for (waiting, delivery), answer in zip(group, answers, strict=True):
            waiting.done.set_result((answer, len(delivery.entries)))


def _own(head: Head, token: Token) -> None:
    if head.vm != token.vm:
        raise BatchError(403, f"This token is not one of VM {head.vm}: a VM can only write as itself.")
