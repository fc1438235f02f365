"""The aiohttp application: access, endpoints, page, metrics. Every answer is made in a worker thread.

Answers carry an ETag of their bytes, so a page that asks every few seconds costs a hash; they are compressed where the
client takes it. Nothing here writes.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import web

from collector.api.access import Access
from collector.api.endpoints import ENDPOINTS, PREFIX, Endpoint
from collector.api.openapi import document
from collector.api.parameters import ParameterError, read
from collector.memory import give_back
from collector.query import Query
from shim import __version__

PAGE: Final = Path(__file__).parent.parent / "page"
# Nothing but our own files: no inline script or style, no frame around us, no form that leaves.
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
COMPRESS_FROM: Final = 1024
# An answer of this many bytes leaves as much as ten times that behind, free but held.
LARGE: Final = 256 << 10
FILE_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Answers:
    """One query layer, used by one thread at a time (its ledger connection belongs to that thread)."""

    def __init__(self, open_query: Callable[[], Query]) -> None:
        self._open = open_query
        self._query: Query | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")

    async def __call__(self, ask: Callable[[Query], bytes]) -> bytes:
        """What ``ask`` makes of the query layer."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, ask)

    def _ask(self, ask: Callable[[Query], bytes]) -> bytes:
        if self._query is None:
            self._query = self._open()
        answer = ask(self._query)
        if len(answer) >= LARGE:
            self._thread.submit(give_back)  # once this one is on its way
        return answer

    def close(self) -> None:
        """Let go of the ledger, once the question being answered is done."""
        if self._query is not None:
            self._thread.submit(self._query.ledger.close)
        self._thread.shutdown()


def application(
    open_query: Callable[[], Query],
    access: Access,
    metrics: Callable[[Query], bytes] | None = None,
    own: Sequence[web.RouteDef] = (),
) -> web.Application:
    """The API and the page over the query layer that ``open_query`` opens (called in the answering thread).

    ``own``: further routes, which see to it themselves who may use them.
    """
    answers = Answers(open_query)
    app = web.Application(middlewares=[_guarded(access, frozenset(route.path for route in own))], client_max_size=1024)
    app.router.add_routes(own)
    for endpoint in ENDPOINTS.values():
        app.router.add_get(PREFIX + endpoint.name, _endpoint(endpoint, answers))
    described = orjson.dumps(document(__version__, token=access.token is not None))
    app.router.add_get("/openapi.json", _fixed(described, "application/json"))
    app.router.add_get("/healthz", _health)
    app.router.add_get("/", _file("index.html"))
    app.router.add_get("/page/{name:[A-Za-z0-9_./-]+}", _page_file)
    if metrics is not None:
        app.router.add_get("/metrics", _metrics(answers, metrics))

    async def close(_: web.Application) -> None:
        answers.close()

    app.on_cleanup.append(close)
    return app


def _guarded(access: Access, own: frozenset[str]) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in own:
            return await handler(request)
        denial = access.deny(request.method, request.headers.getall("Host", []), request.headers)
        if denial is not None and not (denial.status == 401 and _is_open(request.path)):
            response: web.StreamResponse = _error(denial.status, denial.message)
            if denial.status == 405:
                response.headers["Allow"] = "GET, HEAD"
            return response
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = _error(
                404, f"Nothing is here; the endpoints are {', '.join(PREFIX + name for name in ENDPOINTS)}."
            )
        except web.HTTPException as error:
            response = _error(error.status, error.reason)
        response.headers.update(HEADERS)
        return response

    return guard


def _is_open(path: str) -> bool:
    """What needs no token: whether we live, and the page's own files, which hold nothing and ask for the token."""
    return path in ("/", "/healthz") or path.startswith("/page/")


def _error(status: int, message: str, parameter: str | None = None) -> web.Response:
    error = {"message": message} | ({"parameter": parameter} if parameter else {})
    return web.Response(status=status, body=orjson.dumps({"error": error}), content_type="application/json")


def _endpoint(endpoint: Endpoint, answers: Answers) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            values = read(request.query.items(), endpoint.parameters)
            body = await answers(lambda query: orjson.dumps(endpoint.answer(query, values)))
        except ParameterError as error:
            return _error(400, str(error), error.name)
        return _tagged(request, body, "application/json")

    return handle


def _tagged(request: web.Request, body: bytes, content_type: str) -> web.Response:
    tag = hashlib.blake2b(body, digest_size=12).hexdigest()
    known = request.if_none_match
    if known and any(etag.value in (tag, "*") for etag in known):
        response = web.Response(status=304)
    else:
        response = web.Response(body=body, content_type=content_type, charset="utf-8")
        if len(body) >= COMPRESS_FROM:
            response.enable_compression()
    response.etag = tag
    return response


def _fixed(body: bytes, content_type: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return _tagged(request, body, content_type)

    return handle


def _metrics(answers: Answers, metrics: Callable[[Query], bytes]) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        body = await answers(metrics)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return handle


async def _health(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b'{"status":"ok"}', content_type="application/json")


def _file(name: str) -> Handler:
    path = PAGE / name

    async def handle(request: web.Request) -> web.StreamResponse:
        kind = FILE_TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
        return _tagged(request, path.read_bytes(), kind)

    return handle


async def _page_file(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    path = (PAGE / name).resolve()
    if not path.is_relative_to(PAGE) or not path.is_file():
        raise web.HTTPNotFound
    return await _file(name)(request)
