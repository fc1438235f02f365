"""Framings: one sans-I/O splitter per way a body is cut into messages.

A splitter is fed body bytes in any split and gives back whole messages, never part of one. It holds at most ``BOUND``
bytes: a longer message is dropped, counted in ``dropped``, and reading goes on behind it. No splitter raises on input
and none looks into a message further than it needs to find its end.
"""

from __future__ import annotations

from typing import Final

# Responses events embed the whole response object, so several MiB are normal (praxis-proxy/ai#1032).
BOUND: Final = 16 * 1024 * 1024
# No JSON reader follows nesting this deep, and a body of brackets alone would cost a step per byte.
DEPTH: Final = 1000
