"""A loopback server that speaks Cursor's Admin API, as far as usage events go."""

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "key_admin"


class CursorApi:
    """What the server knows and does: ``events`` (API objects), ``faults`` (answers given first), ``late`` (events
    that arrive, one by one, each after a first page was served)."""

    def __init__(self, events, faults=(), late=()):
        self.events, self.faults, self.late = list(events), list(faults), list(late)
        self.requests = []

    def answer(self, body):
        found = [one for one in self.events if body["startDate"] <= int(one["timestamp"]) <= body["endDate"]]
        found.sort(key=lambda one: -int(one["timestamp"]))
        size, page = body["pageSize"], body["page"]
        pages = max(1, -(-len(found) // size))
        if self.late and page == 1:
            self.events.append(self.late.pop(0))
        return {
            "totalUsageEventsCount": len(found),
            "pagination": {"numPages": pages, "currentPage": page, "pageSize": size, "hasNextPage": page < pages},
            "usageEvents": found[(page - 1) * size : page * size],
        }


@contextmanager
def serving(api):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            api.requests.append(body)
            expected = "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
            if self.path != "/teams/filtered-usage-events" or self.headers["authorization"] != expected:
                return self.reply(401, {})
            if api.faults:
                status, headers = api.faults.pop(0)
                return self.reply(status, {}, headers)
            return self.reply(200, api.answer(body))

        def reply(self, status, body, headers=()):
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
