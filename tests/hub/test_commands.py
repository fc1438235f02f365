"""The fleet's commands as an operator uses them: tokens, shipped logs, doctor, TLS, a hub asked from elsewhere."""

import gzip
import json
import ssl
import subprocess
import sys
import time

import httpx
import pytest

from tests.e2e.programs import free_port
from tests.hub.programs import COLLECTOR, NOW, hubs, machine, usage_lines


def test_an_operator_brings_a_vm_to_a_hub_and_asks_the_hub(tmp_path):
    with hubs(tmp_path / "hub") as (hub,):
        vm = machine(tmp_path, "web-1", hub.url, hub.token("web-1"))
        vm.write([*usage_lines("web-1", 50), *usage_lines("stranger", 2)])
        vm.run("ingest")
        said = vm.run("push", "--once").stdout
        assert "52 records sent" in said
        assert "2 of them refused" in said
        for by in ("day", "model", "runtime", "session", "vm"):
            asked = json.loads(vm.run("report", "--by", by, "--hub", hub.url, "--format", "json").stdout)["rows"]
            assert sum(row["calls"] for row in asked) == 50
        assert "50" in vm.run("report", "--hub", hub.url, "--window", "all").stdout
        exported = vm.run("export", "--format", "csv", "--hub", hub.url).stdout.splitlines()
        own = vm.run("export", "--format", "csv", "--vm", "web-1").stdout.splitlines()
        assert sorted(exported) == sorted(own)
        assert len(exported) == 51
        assert "sources: 1 read" in vm.run("status", "--hub", hub.url).stdout
        doctor = json.loads(vm.run("doctor", "--json", check=False).stdout)["rows"]
        told = {row["level"]: row["text"] for row in doctor if row["check"] == "hub"}
        assert hub.url in told["ok"]
        assert "2 records (other_vm)" in told["wrong"]
        assert "web-1" in (listed := hub.command("token", "list"))
        assert "valid" in listed
        hub.command("token", "revoke", "web-1")
        assert "revoked" in hub.command("token", "list")


BILL = """date,model,input_tokens,output_tokens,num_model_requests
{day},gpt-4o,1000,100,9
"""


def test_a_hub_is_exported_and_reconciled_as_a_vm_is(tmp_path):
    bill = tmp_path / "bill.csv"
    bill.write_text(BILL.format(day=time.strftime("%Y-%m-%d", time.gmtime(NOW - 7200))))
    with hubs(tmp_path / "hub") as (hub,):
        vm = machine(tmp_path, "web-1", hub.url, hub.token("web-1"))
        vm.write(usage_lines("web-1", 50))
        vm.run("ingest")
        vm.run("push", "--once")
        own, theirs = (otlp_sums(vm, *where) for where in ((), ("--hub", hub.url)))
        assert own == theirs
        assert sum(value for (name, *_), value in own.items() if name == "usage.calls") == 50
        assert otlp_sums(vm, "--hub", hub.url, "--model", "gpt-4o") == otlp_sums(vm, "--model", "gpt-4o") != own
        asked = ("reconcile", "openai", str(bill), "--format", "json")
        rows = json.loads(vm.run(*asked, "--hub", hub.url).stdout)["rows"]
        assert rows == json.loads(vm.run(*asked).stdout)["rows"]
        assert any(row["our_calls"] and row["their_calls"] for row in rows)
        assert vm.run(*asked, "--hub", hub.url, "--db", "x", check=False).returncode == 2


def otlp_sums(vm, *where):
    """The points of an OpenTelemetry export by metric, VM, attributes and start, without the time of asking."""
    file = vm.folder / "metrics.json"
    vm.run("export", "--format", "otlp", "-o", str(file), *where)
    found = {}
    for request in map(json.loads, file.read_text().splitlines()):
        for resource in request["resourceMetrics"]:
            host = str(resource["resource"])
            for metric in resource["scopeMetrics"][0]["metrics"]:
                for point in metric["sum"]["dataPoints"]:
                    key = (metric["name"], host, str(point["attributes"]), point["startTimeUnixNano"])
                    found[key] = float(point.get("asInt", point.get("asDouble")))
    return found


def test_shipped_logs_come_in_once_and_do_not_undo_what_a_vm_pushed(tmp_path):
    logs = tmp_path / "logs"
    for name in ("vm-a", "vm-b"):
        (logs / name).mkdir(parents=True)
        lines = usage_lines(name, 30)
        (logs / name / "usage.jsonl").write_bytes(b"".join(lines[20:]) + b"garbage\n")
        (logs / name / "usage.jsonl.1.gz").write_bytes(gzip.compress(b"".join(lines[:20])))
    with hubs(tmp_path / "hub") as (hub,):
        vm = machine(tmp_path, "vm-a", hub.url, hub.token("vm-a"))
        vm.write(usage_lines("vm-a", 30))
        vm.run("ingest")
        vm.run("push", "--once")
        before = hub.ask("sessions")
        assert "30 records new" in hub.command("ingest", str(logs))
        assert "0 records new" in hub.command("ingest", f"{logs}/*/usage.jsonl*")
        assert {row["vm"]: row["calls"] for row in hub.ask("vms")} == {"vm-a": 30, "vm-b": 30}
        assert [row for row in hub.ask("sessions") if row["vm"] == "vm-a"] == before


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "VM_USAGE_HUB is not set"),
        ({"VM_USAGE_HUB": "http://hub.example"}, "use https://"),
        ({"VM_USAGE_HUB": "https://hub.example", "VM_USAGE_HUB_CA_FILE": "/nowhere.pem"}, "VM_USAGE_HUB_CA_FILE"),
        ({"VM_USAGE_HUB": "https://hub.example", "VM_USAGE_HUB_RATE": "fast"}, "VM_USAGE_HUB_RATE"),
    ],
)
def test_a_push_that_is_not_set_up_is_bad_configuration(tmp_path, settings, text):
    vm = machine(tmp_path, "vm", "", None, **settings)
    vm.write(usage_lines("vm", 1))
    vm.run("ingest")
    done = vm.run("push", "--once", check=False)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr


def test_a_hub_serves_tls_by_files_and_a_vm_verifies_it(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = [*made, "-keyout", key, "-out", cert, "-days", "2", *names]
    subprocess.run(command, check=True, capture_output=True)
    with hubs(tmp_path / "hub", tls=cert, VM_USAGE_HUB_CERT=str(cert), VM_USAGE_HUB_KEY=str(key)) as (hub,):
        vm = machine(tmp_path, "vm", hub.url, hub.token("vm"))
        vm.write(usage_lines("vm", 3))
        vm.run("ingest")
        refused = vm.run("push", "--once", check=False)
        assert refused.returncode == 1
        assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
        vm.environ["VM_USAGE_HUB_CA_FILE"] = str(cert)
        assert "3 records sent" in vm.run("push", "--once").stdout
        trusting = ssl.create_default_context(cafile=cert)
        assert httpx.get(f"{hub.url}/api/local/vms", verify=trusting).json()["rows"][0]["calls"] == 3


@pytest.mark.parametrize("engine", ["chdb", "sqlite"])
def test_records_of_a_hub_expire_and_its_totals_stay(tmp_path, engine):
    folder = tmp_path / "hub"
    settings = {"VM_USAGE_CLICKHOUSE": f"chdb://{folder / 'chdb'}"} if engine == "chdb" else {}
    with hubs(folder, **settings) as (hub,):
        vm = machine(tmp_path, "vm", hub.url, hub.token("vm"))
        vm.write([line for days in (40, 5, 1) for line in usage_lines("vm", 20, f"b{days}", age=days * 86_400)])
        vm.run("ingest")
        vm.run("push", "--once")
        questions = ("total", "aggregates", "models", "runtimes", "summary")
        before = [hub.ask(question) for question in questions]
        hub.stop()
        hub.environ["VM_USAGE_RETENTION_DAYS"] = "30"
        assert "20 records" in hub.command("expire")
        hub.start()
        vm.run("push", "--once")
        hub.stop()
        said = (folder / f"hub-{hub.url.rpartition(':')[2]}.out").read_text()
        assert ("days_summed" in said) == (engine == "chdb")
        hub.start()
        after = [hub.ask(question) for question in questions]
        for rows in (*before[3], *after[3]):
            rows.pop("sessions")  # of records that are kept
        assert after == before


def test_off_loopback_a_hub_needs_a_readers_token(tmp_path):
    vm = machine(tmp_path, "vm", "", None, VM_USAGE_HUB_BIND="0.0.0.0", VM_USAGE_STATE=str(tmp_path))
    done = vm.run("hub", check=False)
    assert (done.returncode, "VM_USAGE_API_TOKEN_FILE" in done.stderr) == (2, True)


def test_the_schema_is_printed(tmp_path):
    vm = machine(tmp_path, "vm", "")
    assert "ReplacingMergeTree(version)" in vm.run("hub", "schema").stdout
    assert "ON CLUSTER `eu`" in vm.run("hub", "schema", "--cluster", "eu").stdout


def test_a_hub_over_sqlite_needs_no_clickhouse(tmp_path):
    vm = machine(tmp_path, "vm", "")
    program = """import sys; sys.modules["clickhouse_connect"] = sys.modules["chdb"] = None
from collector.__main__ import main; sys.argv[1:] = ["hub", "token", "create", "vm-1"]; main()"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, env=vm.environ, capture_output=True, text=True).stdout.startswith("vmu_")
    vm.environ["VM_USAGE_CLICKHOUSE"] = "https://vm@127.0.0.1:1/db"
    done = subprocess.run(command, env=vm.environ, capture_output=True, text=True)
    assert (done.returncode, "pip install 'vm-usage[fleet]'" in done.stderr) == (1, True), done.stderr


def test_a_running_collector_pushes_and_catches_up_when_its_hub_comes_back(tmp_path):
    with hubs(tmp_path / "hub") as (hub,):
        port = str(free_port())
        vm = machine(tmp_path, "vm", hub.url, hub.token("vm"), VM_USAGE_INTERVAL="0.1", VM_USAGE_API_PORT=port)
        lines = usage_lines("vm", 40)
        vm.write(lines[:10])
        running = subprocess.Popen([COLLECTOR, "run"], env=vm.environ, stderr=subprocess.DEVNULL)
        try:
            wait_for_calls(hub, 10)
            hub.kill()
            vm.write(lines[10:])
            hub.start()
            wait_for_calls(hub, 40)
        finally:
            running.terminate()
            assert running.wait(timeout=20) == 0


def wait_for_calls(hub, count):
    for _ in range(1200):
        if sum(row["calls"] for row in hub.ask("vms")) == count:
            return
        time.sleep(0.05)
    raise AssertionError(hub.ask("vms"))
