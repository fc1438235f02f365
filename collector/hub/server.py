"""The hub's HTTP side: one URL that takes batches, beside the API and the page that every collector serves.

An answer of 200 means that the records are durable. Everything else leaves them with the VM: 401 unknown, expired or
revoked token; 403 another VM's name; 400 and 413 no batch, or too large; 429 too fast; 503 the store is behind or down.
"""

from __future__ import annotations

import asyncio
import queue
import time
from typing import Final

import msgspec
import structlog
from aiohttp import web

from collector.hub.batch import CONTENT_TYPE, MAX_BODY, BatchError
from collector.hub.limits import Rates
from collector.hub.tokens import Token
from collector.hub.writer import Writer
from collector.ledger import LedgerError

log = structlog.get_logger()

BODY_SECONDS: Final = 60.0
BUSY_SECONDS: Final = 5


class Ingest:
    """Handles ``POST batch.PATH``."""

    def __init__(self, writer: Writer, rates: Rates) -> None:
        self._writer = writer
        self._rates = rates

    async def take(self, request: web.Request) -> web.StreamResponse:
        """Take one batch."""
        try:
            token = await self._token(request)
            if wait := self._rates.wait(token.vm):
                return _refuse(429, "This VM sends more than the hub takes from one.", wait)
            body = await _body(request)
            answer, records = await asyncio.wrap_future(self._writer.submit(token, body))
        except BatchError as error:
            return _refuse(error.status, str(error))
        except queue.Full:
            return _refuse(503, "The hub has more waiting than it can hold.", BUSY_SECONDS)
        except LedgerError as error:
            return _refuse(503, str(error), BUSY_SECONDS)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the store's own errors: the batch stays with the VM
            log.error("batch_not_taken", reason=type(error).__name__)
            return _refuse(503, "The hub's store did not take the batch.", BUSY_SECONDS)
        self._rates.spend(token.vm, records)
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _token(self, request: web.Request) -> Token:
        scheme, _, clear = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not clear or len(clear) > 256 or not clear.isascii():
            raise BatchError(401, "A bearer token is needed (usage-collector hub token create).")
        token = await asyncio.wrap_future(self._writer.token(clear.strip()))
        if token is None:
            raise BatchError(401, "This token is not known here (usage-collector hub token create).")
        if reason := token.why_not(time.time()):
            raise BatchError(401, reason)
        return token


async def _body(request: web.Request) -> bytes:
    if request.content_type != CONTENT_TYPE:
        raise BatchError(415, f"The body must be {CONTENT_TYPE}.")
    if (request.content_length or 0) > MAX_BODY:
        raise BatchError(413, f"A body may be {MAX_BODY} bytes long.")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_chunked(1 << 16):
                body += chunk
                if len(body) > MAX_BODY:
                    raise BatchError(413, f"A body may be {MAX_BODY} bytes long.")
    except TimeoutError:
        raise BatchError(408, "The body did not come in time.") from None
    return bytes(body)


def _refuse(status: int, message: str, wait: int | None = None) -> web.Response:
    headers = {} if wait is None else {"Retry-After": str(wait)}
    body = msgspec.json.encode({"error": {"message": message}})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
