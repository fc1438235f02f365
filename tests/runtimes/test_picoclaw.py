"""PicoClaw: each agent's workspace, named by the configuration or beside the default one."""

import json
from pathlib import Path

import pytest

from collector import stores
from collector.runtimes import SourceError
from collector.runtimes.picoclaw import READER
from tests.runtimes.transcripts import read_home, write


def spoke(workspace: Path, key: str) -> None:
    write(workspace / f"sessions/{key}.jsonl", {"role": "assistant", "created_at": "2026-11-30T16:00:00Z"})


def configured(home: Path, default: object, *agents: object) -> None:
    config = {"agents": {"defaults": {"workspace": default}, "list": list(agents)}}
    (home / ".picoclaw").mkdir()
    (home / ".picoclaw/config.json").write_text(json.dumps(config))


def sessions(home: Path, **environ: str) -> set[str]:
    return set(read_home(READER, home, environ).sessions)


def test_agents_without_a_workspace_of_their_own_have_one_beside_the_default_one(tmp_path):
    spoke(tmp_path / ".picoclaw/workspace", "main")
    spoke(tmp_path / ".picoclaw/workspace-sales", "sales")
    spoke(tmp_path / ".picoclaw/elsewhere", "no-workspace")
    assert sessions(tmp_path) == {"main", "sales"}


def test_workspaces_that_the_configuration_names_are_read_below_the_home_alone(tmp_path):
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    agents = ({"id": "ops", "workspace": str(home / "ops")}, {"workspace": str(other)}, {"workspace": "../other"})
    configured(home, "~/bots/main", *agents, {"workspace": 5}, "none")
    for workspace in (home / "bots/main", home / "bots/workspace-sales", home / "ops", other):
        spoke(workspace, workspace.name)
    assert sessions(home) == {"main", "workspace-sales", "ops"}


@pytest.mark.parametrize("default", [None, "/home/dev/.picoclaw/workspace", "", 7])
def test_a_configuration_from_elsewhere_hides_nothing(tmp_path, default):
    configured(tmp_path, default)
    spoke(tmp_path / ".picoclaw/workspace", "main")
    assert sessions(tmp_path) == {"main"}


def test_folders_of_the_home_itself_are_no_workspaces_by_their_names(tmp_path):
    configured(tmp_path, "~/workspace")
    spoke(tmp_path / "workspace", "main")
    spoke(tmp_path / "workspace-of-another-program", "other")
    assert sessions(tmp_path) == {"main"}


def test_the_workspaces_are_shown_to_the_service(tmp_path):
    configured(tmp_path, "~/bots/main")
    spoke(tmp_path / "bots/workspace-sales", "sales")
    shown = [store.folder for store in stores.stores(tmp_path, ["picoclaw"])]
    assert shown == [".picoclaw/workspace/sessions", "bots/main/sessions", "bots/workspace-sales/sessions"]


def test_sessions_that_are_a_link_out_of_the_home_are_reported_not_read(tmp_path):
    home, outside = tmp_path / "home", tmp_path / "outside"
    write(outside / "k.jsonl", {"role": "assistant", "created_at": "2026-08-12T08:00:00Z"})
    (home / ".picoclaw/workspace").mkdir(parents=True)
    (home / ".picoclaw/workspace/sessions").symlink_to(outside)
    (source,) = READER.sources(home, {})
    with pytest.raises(SourceError):
        list(READER.read(source, None))
