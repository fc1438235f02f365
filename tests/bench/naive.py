"""What is usually written: an aiohttp server that calls an aiohttp client.

Run as ``python -m tests.bench.naive PORT UPSTREAM``.
"""

from __future__ import annotations

import sys

import aiohttp
import uvloop
from aiohttp import web

CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


def application(upstream: str) -> web.Application:
    """A proxy to ``upstream``."""
    app = web.Application(client_max_size=1 << 30)

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in CONNECTION}
        url = upstream + request.path_qs
        async with app["session"].request(request.method, url, headers=headers, data=await request.read()) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in CONNECTION}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    async def session(app: web.Application):
        app["session"] = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        yield
        await app["session"].close()

    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


if __name__ == "__main__":
    uvloop.install()
    web.run_app(application(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
