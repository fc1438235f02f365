"""Wanted members of JSON objects too large to hold: read in one pass, everything else passed over.

A 64 MiB body costs no more memory than the members that are kept. The pass is structural: a key counts only on its
path from the top, so text, tool arguments and echoed schemas are never mistaken for it. Several objects in a row
(NDJSON under another name) come out as several.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from shim.framing import DEPTH
from shim.framing.json_array import IN_STRING, STRUCTURE

TOKEN: Final = re.compile(rb"[^\s]")
SCALAR: Final = re.compile(rb"[^\s,:{}\[\]\"]*+")
# A usage object is some hundred bytes; an error object may quote a provider's message.
KEEP: Final = 64 * 1024

QUOTE, COLON, COMMA, OPEN, CLOSE = b'":,{}'
ARRAY_OPEN: Final = ord("[")
# What may come next inside an object that is looked into.
TOP, KEY, AFTER_KEY, VALUE, AFTER_VALUE, BROKEN = range(6)


class MemberScanner:
    """The members at ``wanted`` paths of each top-level object, in objects nested the same way.

    A member longer than ``KEEP`` is there as ``True``: present, but not to be read.
    """

    __slots__ = (
        "_captured",
        "_depth",
        "_documents",
        "_in_string",
        "_objects",
        "_path",
        "_pending",
        "_state",
        "_text",
        "_wanted",
        "_way",
    )

    def __init__(self, wanted: frozenset[tuple[str, ...]]) -> None:
        self._wanted = wanted
        self._way = {path[:length] for path in wanted for length in range(1, len(path))}
        self._state = TOP
        self._path: list[str] = []  # keys from the top to the member in progress
        self._depth = 0  # open containers inside a value that is passed over
        self._objects = 0
        self._in_string = False
        self._text: bytearray | None = None  # the key or wanted value in progress
        self._captured: dict[tuple[str, ...], Any] = {}
        self._documents: list[dict[str, Any]] = []
        self._pending = b""

    @property
    def whole(self) -> bool:
        """Whether the bytes so far are one complete object and nothing else."""
        return self._state == TOP and self._objects == 1 and not self._pending

    def feed(self, data: bytes | bytearray) -> list[dict[str, Any]]:
        """The objects that are complete with ``data``, with their wanted members only."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        at = 0
        while at < len(data) and self._state != BROKEN:
            if self._in_string:
                at = self._string(data, at)
            elif self._depth:
                at = self._skip(data, at)
            else:
                at = self._token(data, at)
        documents, self._documents = self._documents, []
        return documents

    def unfinished(self) -> dict[str, Any]:
        """The wanted members of the object that was cut off."""
        return self._assembled()

    def _string(self, data: bytes | bytearray, at: int) -> int:
        end = IN_STRING.match(data, at).end()  # type: ignore[union-attr]  # the pattern matches anywhere
        if end == len(data):
            self._keep(data[at:end])
            return end
        if data[end] != QUOTE:  # a lone backslash at the end of the read
            self._keep(data[at:end])
            self._pending = bytes(data[end:])
            return len(data)
        self._keep(data[at : end + 1])
        self._in_string = False
        if not self._depth:
            self._close_string()
        return end + 1

    def _close_string(self) -> None:
        if self._state == KEY:
            key = self._decoded()
            self._path.append(key if isinstance(key, str) else "")
            self._state = AFTER_KEY
        else:
            self._close_value()

    def _skip(self, data: bytes | bytearray, at: int) -> int:
        found = STRUCTURE.search(data, at)
        if found is None:
            self._keep(data[at:])
            return len(data)
        self._keep(data[at : found.end()])
        byte = data[found.start()]
        if byte == QUOTE:
            self._in_string = True
        elif byte in (OPEN, ARRAY_OPEN):
            self._depth += 1
            if self._depth > DEPTH:
                self._state = BROKEN
        else:
            self._depth -= 1
            if not self._depth:
                self._close_value()
        return found.end()

    def _token(self, data: bytes | bytearray, at: int) -> int:
        """Read one token of an object that is looked into."""
        found = TOKEN.search(data, at)
        if found is None:
            return len(data)
        at = found.end()
        byte = data[at - 1]
        if self._state == VALUE:
            return self._value(data, at, byte)
        if self._state == TOP and byte == OPEN:
            self._state = KEY
        elif self._state == KEY and byte == QUOTE:
            self._text = bytearray(b'"')
            self._in_string = True
        elif self._state == AFTER_KEY and byte == COLON:
            self._state = VALUE
        elif self._state == AFTER_VALUE and byte == COMMA:
            self._state = KEY
        elif self._state in (AFTER_VALUE, KEY) and byte == CLOSE:
            self._close_object()
        else:
            self._state = BROKEN
        return at

    def _value(self, data: bytes | bytearray, at: int, byte: int) -> int:
        path = tuple(self._path)
        if byte == OPEN and path in self._way:
            self._state = KEY
            return at
        self._text = bytearray() if path in self._wanted else None
        if byte == QUOTE:
            self._keep(b'"')
            self._in_string = True
        elif byte in (OPEN, ARRAY_OPEN):
            self._keep(data[at - 1 : at])
            self._depth = 1
        else:
            return self._scalar(data, at - 1)
        return at

    def _scalar(self, data: bytes | bytearray, at: int) -> int:
        end = SCALAR.match(data, at).end()  # type: ignore[union-attr]  # the pattern matches anywhere
        if end == at:
            self._state = BROKEN
        elif end == len(data) and end - at < 64:  # may go on in the next read
            self._pending = bytes(data[at:])
        else:
            self._keep(data[at:end])
            self._close_value()
        return end

    def _close_value(self) -> None:
        if self._text is not None:
            self._captured[tuple(self._path)] = True if len(self._text) > KEEP else self._decoded()
            self._text = None
        self._path.pop()
        self._state = AFTER_VALUE

    def _close_object(self) -> None:
        if self._path:
            self._path.pop()
            self._state = AFTER_VALUE
            return
        self._documents.append(self._assembled())
        self._objects += 1
        self._captured = {}
        self._state = TOP

    def _assembled(self) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for path, value in self._captured.items():
            node = document
            for key in path[:-1]:
                node = node.setdefault(key, {})
            node[path[-1]] = value
        return document

    def _keep(self, data: bytes | bytearray) -> None:
        if self._text is not None and len(self._text) <= KEEP:
            self._text += data

    def _decoded(self) -> Any:
        try:
            return json.loads(self._text or b"null")
        except (ValueError, RecursionError):
            return None
