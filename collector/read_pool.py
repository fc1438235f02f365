"""Reading many sources, in this process or, where there is much to read, in several at once; the outcome is the same.

What is true here: batches come out source by source, in the order that the sources were given in, however many
processes read. A worker that dies costs nothing but time: what it had not told is read in this process, from the last
batch on. Workers live as long as one ``Pool`` and hold one source's batch each; what they send ahead is bounded.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from collector import read_worker
from collector.read_worker import LENGTH, End, Found
from collector.runtimes import Batch, Reader, Source, SourceError
from collector.runtimes.table import READERS

# Starting a worker takes as long as reading about this much.
WORTH_WORKERS: Final = 64 << 20
MAX_WORKERS: Final = 4
COMMAND: Final = (sys.executable, "-P", "-m", "collector.read_worker")
# Orders that wait in a worker's pipe; less than any pipe holds, so that handing one over never waits.
MAX_ORDERS: Final = 4
MAX_WAITING: Final = 48 << 10
# Bytes of answers that are held until it is their source's turn; half as much again waits in each worker's pipe.
MAX_HELD: Final = 4 << 20
PIPE: Final = 1 << 18
# Blocks come and go by the megabyte. A worker keeps the memory of the last ones instead of asking the system for it and
# giving it back each time (mallopt(3)); an eighth of its time.
ALLOCATOR: Final = {"MALLOC_MMAP_THRESHOLD_": str(16 << 20), "MALLOC_TRIM_THRESHOLD_": str(32 << 20)}


@dataclass(frozen=True, slots=True)
class Unread:
    """A source that is to be read from ``state`` on, and about how many of its bytes are new."""

    reader: Reader
    source: Source
    state: dict[str, Any] | None
    size: int


@dataclass(slots=True)
class _Answers:
    """What a worker has told of one source, with its size in bytes; ``lost``: it will tell no more."""

    messages: deque[tuple[int, Found | End]] = field(default_factory=deque)
    lost: bool = False


class _Worker:
    """A process that reads, the sources that it was given and has not finished, and bytes of an unfinished answer."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            COMMAND,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            pipesize=PIPE,
            env=ALLOCATOR | os.environ,
        )
        self.given: deque[tuple[int, int]] = deque()
        self.rest = bytearray()

    def has_room(self, length: int) -> bool:
        """Whether an order of this length can be handed over without waiting for the worker."""
        if not self.given:
            return True
        return len(self.given) < MAX_ORDERS and length + sum(size for _, size in self.given) <= MAX_WAITING

    def give(self, number: int, frame: bytes) -> None:
        """Hand over an order. Raises ``OSError`` where the worker is gone."""
        assert self.process.stdin is not None
        self.given.append((number, len(frame)))
        while frame:
            frame = frame[self.process.stdin.write(frame) :]

    def received(self) -> list[bytes] | None:
        """The messages that have come in; ``None`` when the worker is gone."""
        assert self.process.stdout is not None
        data = self.process.stdout.read(PIPE)
        if not data:
            return None
        self.rest += data
        found, at = [], 0
        while len(self.rest) - at >= LENGTH:
            end = at + LENGTH + int.from_bytes(self.rest[at : at + LENGTH], "big")
            if end > len(self.rest):
                break
            found.append(bytes(memoryview(self.rest)[at + LENGTH : end]))
            at = end
        del self.rest[:at]
        return found

    def close(self, *, kill: bool) -> None:
        """Let it end, and wait until it has."""
        if kill:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()


class Pool:
    """Reads sources one after the other, with ``workers`` processes ahead of the one whose turn it is; 0 for none."""

    def __init__(self, unread: Iterable[Unread], workers: int) -> None:
        self._unread = unread
        self._count = workers
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._answers: dict[int, _Answers] = {}
        self._held = 0
        self.lost_workers = 0

    def __enter__(self) -> Self:
        for _ in range(self._count):
            try:
                self._add(_Worker())
            except OSError:  # no more processes allowed here: those that started, or none, are enough
                self.lost_workers += 1
                break
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            worker.close(kill=kind is not None)
        self._selector.close()

    def __iter__(self) -> Iterator[tuple[Unread, Iterator[Batch]]]:
        """Each source with its batches, to be taken in full before the next; taking them may raise ``SourceError``."""
        coming = enumerate(self._unread)
        ahead: deque[tuple[int, Unread]] = deque()
        while True:
            self._hand_out(coming, ahead)
            if not ahead:
                return
            number, one = ahead.popleft()
            yield one, self._batches(number, one, coming, ahead)

    def _add(self, worker: _Worker) -> None:
        self._workers.append(worker)
        assert worker.process.stdout is not None
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def _hand_out(self, coming: Iterator[tuple[int, Unread]], ahead: deque[tuple[int, Unread]]) -> None:
        """Orders to workers that have room, and at least the one source whose turn is next."""
        while self._held < MAX_HELD and (worker := self._free()) is not None:
            item = next(coming, None)
            if item is None:
                return
            ahead.append(item)
            if (frame := _order(item[1])) is not None:
                self._give(worker, item[0], frame)
        if not ahead and (item := next(coming, None)) is not None:
            ahead.append(item)

    def _free(self) -> _Worker | None:
        least = min(self._workers, key=lambda worker: len(worker.given), default=None)
        return least if least is not None and least.has_room(MAX_WAITING // MAX_ORDERS) else None

    def _give(self, worker: _Worker, number: int, frame: bytes) -> None:
        if not worker.has_room(len(frame)):
            return  # too long to wait in a pipe: it is read here when its turn comes
        self._answers[number] = _Answers()
        try:
            worker.give(number, frame)
        except OSError:
            self._gone(worker)

    def _gone(self, worker: _Worker) -> None:
        """A worker has died; what it was given is read here."""
        for number, _ in worker.given:
            if number in self._answers:
                self._answers[number].lost = True
        assert worker.process.stdout is not None
        self._selector.unregister(worker.process.stdout)
        self._workers.remove(worker)
        worker.close(kill=True)
        self.lost_workers += 1

    def _batches(
        self, number: int, one: Unread, coming: Iterator[tuple[int, Unread]], ahead: deque[tuple[int, Unread]]
    ) -> Iterator[Batch]:
        state = one.state
        try:
            for found in self._told(number, coming, ahead):
                if isinstance(found, Found):
                    state = found.state
                    yield Batch(found.records, found.sessions, Counter(found.skipped), state, found.unfinished)
                elif found.reason is not None:
                    raise SourceError(one.source.path, found.reason)
                elif found.unsent:
                    break
                else:
                    return
        finally:
            left = self._answers.pop(number, _Answers())
            self._held -= sum(size for size, _ in left.messages)
        yield from one.reader.read(one.source, state)

    def _told(
        self, number: int, coming: Iterator[tuple[int, Unread]], ahead: deque[tuple[int, Unread]]
    ) -> Iterator[Found | End]:
        """What a worker tells of a source, as far as it does."""
        told = self._answers.get(number)
        while told is not None:
            while not told.messages and not told.lost:
                self._wait(number)
                self._hand_out(coming, ahead)
            if not told.messages:
                return
            size, found = told.messages.popleft()
            self._held -= size
            yield found

    def _wait(self, number: int) -> None:
        """Take in what workers have sent; where much is held already, only from the one whose turn it is."""
        if self._held < MAX_HELD:
            ready: list[_Worker] = [key.data for key, _ in self._selector.select()]
        else:
            ready = [worker for worker in self._workers if number in (given for given, _ in worker.given)]
        for worker in ready:
            self._take(worker)

    def _take(self, worker: _Worker) -> None:
        messages = worker.received()
        if messages is None:
            self._gone(worker)
            return
        for message in messages:
            found, told = read_worker.answer(message), self._answers.get(worker.given[0][0])
            if told is not None:
                told.messages.append((len(message), found))
                self._held += len(message)
            if isinstance(found, End):
                worker.given.popleft()


def workers_for(size: int) -> int:
    """How many processes to read about this many new bytes with: none where it is little or one processor is all."""
    usable = processors()
    return min(MAX_WORKERS, usable) if size >= WORTH_WORKERS and usable > 1 else 0


def processors(root: Path = Path("/")) -> int:
    """How many processors this process may use: those it may run on, within the quota of its control group."""
    usable = os.cpu_count() or 1
    try:
        usable = len(os.sched_getaffinity(0))
        groups = (root / "proc/self/cgroup").read_text().splitlines()
        own = root / "sys/fs/cgroup" / next(line[4:] for line in groups if line.startswith("0::/"))
        for folder in (own, *own.parents):
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text().split()
                usable = usable if quota == "max" else min(usable, int(quota) // int(period))
    except (OSError, ValueError, StopIteration):
        pass  # no control groups of version 2 to be seen here, or it may not be asked
    return usable


def _order(one: Unread) -> bytes | None:
    """The order for a source, ``None`` for a reader or a state that no message can name."""
    if one.reader not in READERS:
        return None
    try:
        return read_worker.order(one.source, one.state)
    except (UnicodeError, OverflowError, TypeError):
        return None
