"""What a collector believes of a hub's answers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from collector import windows
from collector.query import ALL_RECORDS
from collector.remote import RemoteError, RemoteQuery
from collector.rows import Page
from tests.collector.worlds import ZONE


@contextmanager
def hub(body: bytes) -> Iterator[RemoteQuery]:
    """A hub that answers everything with ``body``."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        query = RemoteQuery(f"http://127.0.0.1:{server.server_port}")
        try:
            yield query
        finally:
            query.close()
            server.shutdown()


@pytest.mark.parametrize(
    "ask",
    [
        lambda query: query.sessions(page=Page(limit=10)),
        lambda query: list(query.groups()),
        lambda query: list(query.scan(ALL_RECORDS, windows.Calendar(ZONE))),
    ],
)
def test_pages_that_lead_to_themselves_are_an_error_not_an_endless_question(
    ask: Callable[[RemoteQuery], object],
) -> None:
    with hub(b'{"rows":[],"next_cursor":"7"}') as query, pytest.raises(RemoteError, match="again and again"):
        ask(query)
