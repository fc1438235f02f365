"""Bounded maps that forget what was used longest ago, one of them in front of what all workers share."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Generic, TypeVar

from shim.session_store import SessionStore

_Value = TypeVar("_Value")


class Recent(Generic[_Value]):
    """A map that holds the ``size`` keys used last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[Any, _Value] = OrderedDict()

    def get(self, key: Any) -> _Value | None:
        """The value under ``key``, which counts as a use of it."""
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: Any, value: _Value) -> None:
        """Set a value and forget the key used longest ago if there are too many."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._size:
            self._items.popitem(last=False)

    def __len__(self) -> int:
        return len(self._items)


class Shared(Recent[str]):
    """A map from hashes to sessions in front of the store, which is asked for what is not here and told what is new.

    ``kind``: one byte that keeps the hashes of one map apart from those of another.
    """

    def __init__(self, size: int, store: SessionStore | None, kind: bytes) -> None:
        super().__init__(size)
        self._store = store
        self._kind = kind

    def get(self, key: bytes) -> str | None:
        """The session under a 16-byte hash."""
        session = super().get(key)
        if session is None and self._store is not None:
            session = self._store.get(self._kind + key[1:])
            if session is not None:
                super().put(key, session)
        return session

    def newest(self, key: bytes) -> str | None:
        """What is under a 16-byte hash as the other workers know it by now."""
        known = self._store.get(self._kind + key[1:]) if self._store is not None else None
        return known if known is not None else super().get(key)

    def put(self, key: bytes, value: str) -> None:
        """Set the session under a 16-byte hash."""
        if self._store is not None and self._items.get(key) != value:
            self._store.put(self._kind + key[1:], value, time.time())
        super().put(key, value)

    def join(self, key: bytes, session: str) -> None:
        """Have ``session`` under a hash; empty where two sessions had it."""
        if self._items.get(key) == session:  # as it mostly is: a request repeats what the last one brought
            self._items.move_to_end(key)
            return
        known = self.get(key)
        self.put(key, session if known is None or known == session else "")
