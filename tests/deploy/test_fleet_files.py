"""Ansible role and cloud-init data: linted, every variable specified and said what it does."""

from __future__ import annotations

import re

import yaml

from tests.deploy.tools import DEPLOY, needs, said

ROLE = DEPLOY / "ansible/roles/vm_usage"


@needs("ansible-lint")
def test_the_role_is_clean_for_ansible() -> None:
    said("sh", "-c", f"cd {DEPLOY}/ansible && ansible-lint --offline -q")


@needs("yamllint")
def test_yaml_is_clean() -> None:
    said("yamllint", "-c", DEPLOY / "ansible/.yamllint", DEPLOY / "ansible")


@needs("cloud-init")
def test_user_data_is_valid() -> None:
    said("cloud-init", "schema", "--config-file", DEPLOY / "cloud-init/user-data.yaml")


def test_every_variable_is_specified_and_explained() -> None:
    text = (ROLE / "defaults/main.yml").read_text()
    defaults = yaml.safe_load(text)
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert set(defaults) == set(options)
    blocks = re.split(r"\n\n+", text)
    assert all(block.lstrip("-\n").startswith("#") for block in blocks)


def test_nothing_is_on_by_default() -> None:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    assert {name for name, value in defaults.items() if value} == {"vm_usage_collector"}


def test_user_data_holds_no_secret() -> None:
    text = (DEPLOY / "cloud-init/user-data.yaml").read_text()
    assert not re.search(r"(?i)(token|secret|key)\w*\s*[=:]\s*\S", re.sub(r"#.*", "", text))
