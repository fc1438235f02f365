"""The statements of ``hub schema``: the engine parses those of a cluster, and a server is sent what it must be sent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from collector.entries import NAMES
from collector.ledger import LedgerError, clickhouse
from collector.ledger.clickhouse_schema import RECORD, STORES, statements
from tests.ledger.records import line


def test_every_name_of_an_entry_has_a_column():
    assert list(RECORD.columns)[: len(NAMES)] == list(NAMES)


@pytest.mark.parametrize("cluster", [None, "fleet"])
def test_the_engine_parses_every_statement(chdb, cluster):
    for statement in statements(cluster):
        assert chdb.ask(f"EXPLAIN AST {statement}")
        formatted = chdb.ask("SELECT formatQuery({text:String})".replace("{text:String}", repr_sql(statement)))[0][0]
        assert formatted.split() == chdb.ask(f"SELECT formatQuery({repr_sql(formatted)})")[0][0].split()


def repr_sql(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def test_on_a_cluster_records_are_replicated_per_shard_and_spread_by_id():
    made = {text.split(" ON CLUSTER")[0].split()[-1]: text for text in statements("fleet")}
    assert (
        "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/record_local', '{replica}', version)"
        in made["record_local"]
    )
    assert "Distributed(`fleet`, currentDatabase(), record_local, cityHash64(id))" in made["record"]
    assert "PARTITION BY toYYYYMM" in made["record_local"]
    # a small table is whole on every node: one path, and replicas of all shards told apart
    assert "('/clickhouse/tables/all/{database}/hub_vm', '{shard}-{replica}', written)" in made["hub_vm"]
    assert len(made) == len(STORES) + sum(store.shard is not None for store in STORES)


class Server(BaseHTTPRequestHandler):
    """Answers as a ClickHouse server would, as far as a client needs, and remembers what it was asked."""

    asked: list

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunks()
        parameters = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.server.asked.append((parameters, body))
        query = parameters.get("query", "") + body.decode("utf-8", "replace")
        reply = b""
        if "version()" in query and "timezone()" in query:
            reply = b"26.9.1.1\tUTC\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.send_header("X-ClickHouse-Summary", json.dumps({"written_rows": "1"}))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST

    def _chunks(self):
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_cluster_is_sent_its_tables_and_bulk_inserts(server):
    dsn = f"http://vm@127.0.0.1:{server.server_port}/fleet"
    ledger = clickhouse.ClickHouseLedger(dsn, "UTC", password="secret", cluster="fleet")
    ledger.append([line(1), line(2)])
    ledger.close()
    texts = [(parameters.get("query", "") + "\n" + body.decode()).strip() for parameters, body in server.asked]
    made = [text for text in texts if text.startswith("CREATE TABLE")]
    assert made == list(statements("fleet"))
    (insert,) = [asked for asked in server.asked if asked[1].startswith(b"INSERT INTO record ")]
    parameters, body = insert
    statement, *rows = body.splitlines()
    assert statement.endswith(b"FORMAT JSONEachRow")
    assert [json.loads(row)["id"] for row in rows] == ["boot-1", "boot-2"]
    assert len(parameters["insert_deduplication_token"]) == 32
    assert (parameters["insert_quorum"], parameters["distributed_foreground_insert"]) == ("auto", "1")
    assert parameters["database"] == "fleet"
    looks = [text for text in texts if "WHERE id IN ('boot-1', 'boot-2')" in text]
    assert " FROM record " in looks[0]  # before it is written, and after it wherever another hub may have written it
    assert " FROM clusterAllReplicas(`fleet`, currentDatabase(), record_local) " in looks[1]


def test_a_server_that_does_not_answer_is_one_sentence():
    with pytest.raises(LedgerError, match="VM_USAGE_CLICKHOUSE"):
        clickhouse.ClickHouseLedger("http://127.0.0.1:1/fleet", "UTC")


def test_a_ledger_keeps_its_time_zone(chdb, engine_folder):
    with pytest.raises(LedgerError, match="VM_USAGE_TZ=Europe/Berlin"):
        clickhouse.ClickHouseLedger(f"chdb://{engine_folder}", "UTC")
