"""Fleet tools on machines of their own: the Ansible role twice, and cloud-init from its NoCloud data source."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.conftest import eventually
from tests.vm.machine import FLEET, Machine

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
CONFIG = "/home/agent/.picoclaw/config.json"
PLAYBOOK = """
- hosts: localhost
  connection: local
  roles:
    - role: vm_usage
      vm_usage_package: /root/vm-usage.deb
      vm_usage_log: /var/log/vm-usage/usage.jsonl
      vm_usage_shim_settings: {VM_USAGE_RUNTIME: picoclaw}
      vm_usage_optin_runtimes: [picoclaw]
      vm_usage_optin_units: [agent.service]
      vm_usage_picoclaw_configs: [/home/agent/.picoclaw/config.json]
      vm_usage_stores: true
"""


def agent_machine(folder: Path, package: Path) -> Machine:
    """A machine that is not yet booted, with an agent's user and PicoClaw's configuration."""
    made = Machine(folder, packages=FLEET)
    made.copy(package, "/root/vm-usage.deb")
    made.copy(DEPLOY.parent / "tests/runtimes/picoclaw/home/.picoclaw", "/home/agent/.picoclaw")
    (made.root / "etc/machine-id").write_text("")
    return made


@pytest.fixture(scope="module")
def by_ansible(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = agent_machine(tmp_path_factory.mktemp("ansible"), package)
    made.copy(DEPLOY / "ansible/roles", "/root/roles")
    (made.root / "root/site.yml").write_text(PLAYBOOK)
    (made.root / "etc/cloud/cloud-init.disabled").touch()
    made.boot()
    made.sh("useradd agent; chown -R agent: /home/agent")
    yield made
    made.stop()


def test_the_role_is_clean_for_ansible_lint(by_ansible: Machine) -> None:
    # Alone in a folder, as in the checkout: ansible-lint takes what lies beside it for parts of one project.
    by_ansible.copy(DEPLOY / "ansible", "/root/lint/ansible")
    by_ansible.sh("cd /root/lint/ansible && ansible-lint --offline", ANSIBLE_NOCOLOR="1", LC_ALL="C.UTF-8")


def play(machine: Machine) -> dict[str, int]:
    """Run the playbook; its recap."""
    said = machine.out(
        "sh", "-c", "cd /root && ansible-playbook -i localhost, site.yml", ANSIBLE_NOCOLOR="1", LC_ALL="C.UTF-8"
    )
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", said.splitlines()[-1])}


def test_the_role_sets_a_machine_up_and_the_second_run_changes_nothing(by_ansible: Machine) -> None:
    first, second = play(by_ansible), play(by_ansible)
    assert first["failed"] == second["failed"] == 0
    assert first["changed"] > 0
    assert second["changed"] == 0


def test_the_role_left_a_metering_machine(by_ansible: Machine) -> None:
    assert json.loads(by_ansible.out("usage-shim", "status", "--json"))["metering"] is True
    entry = json.loads(by_ansible.out("cat", CONFIG))["model_list"][0]
    assert entry["api_base"].startswith("http://127.0.0.1:4141/")
    assert by_ansible.out("systemctl", "is-active", "usage-collector", "usage-stores.timer") == "active\nactive"


def test_a_mistaken_setting_is_refused_before_it_counts(by_ansible: Machine) -> None:
    before = by_ansible.out("cat", "/etc/default/usage-shim")
    by_ansible.sh("sed -i 's/VM_USAGE_RUNTIME/VM_USAGE_RUNTIEM/' /root/site.yml")
    done = by_ansible.run("sh", "-c", "cd /root && ansible-playbook -i localhost, site.yml", check=False)
    assert done.returncode != 0
    assert "did you mean VM_USAGE_RUNTIME" in done.stdout
    assert by_ansible.out("cat", "/etc/default/usage-shim") == before


@pytest.fixture(scope="module")
def by_cloud_init(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = agent_machine(tmp_path_factory.mktemp("cloud"), package)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    data = (DEPLOY / "cloud-init/user-data.yaml").read_text()
    data = re.sub(r'"https://packages.example.com/[^"]*"', "file:///root/vm-usage.deb", data).replace("0" * 64, digest)
    seed = made.root / "var/lib/cloud/seed/nocloud"
    seed.mkdir(parents=True)
    (seed / "user-data").write_text(data)
    (seed / "meta-data").write_text("instance-id: vm-7\nlocal-hostname: vm-7\n")
    (made.root / "etc/cloud/cloud.cfg.d/99-test.cfg").write_text(
        "datasource_list: [NoCloud]\nnetwork: {config: disabled}\nlocale: false\n"
    )
    made.boot()
    yield made
    made.stop()


def test_the_user_data_is_valid(by_cloud_init: Machine) -> None:
    by_cloud_init.copy(DEPLOY / "cloud-init/user-data.yaml", "/root/user-data.yaml")
    by_cloud_init.run("cloud-init", "schema", "--config-file", "/root/user-data.yaml")


def test_cloud_init_leaves_a_metering_machine(by_cloud_init: Machine) -> None:
    said = by_cloud_init.run("cloud-init", "status", "--wait", "--long", check=False).stdout
    log = by_cloud_init.sh("tail -n 40 /var/log/cloud-init-output.log")
    assert "status: done" in said, said + log
    eventually(lambda: json.loads(by_cloud_init.out("usage-shim", "status", "--json"))["metering"] is True)
    assert by_cloud_init.out("systemctl", "is-active", "usage-collector", "usage-stores.timer") == "active\nactive"
    assert "4141" in by_cloud_init.out("cat", CONFIG)


def test_two_machines_of_one_image_have_names_and_keys_of_their_own(
    by_ansible: Machine, by_cloud_init: Machine
) -> None:
    machines = (by_ansible, by_cloud_init)
    names = {json.loads(m.out("usage-shim", "status", "--json"))["vm"] for m in machines}
    keys = {m.sh("sha256sum < /var/lib/vm-usage/reference.key") for m in machines}
    assert (len(names), len(keys)) == (2, 2)
