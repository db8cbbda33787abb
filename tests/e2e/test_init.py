"""`perdure init` writes three files that work unchanged; `perdure doctor` checks a project."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.chance import draw_seed
from tests.e2e.conftest import Call, CallJson
from tests.e2e.test_cli import refusal
from tests.e2e.test_doctor import file_hashes, finding_of

FILES = {"perdure.json", "graph/react.py", "graph/dependencies.py"}
PASSWORD = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def remove_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "MODEL", "PERDURE_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def demo(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that `init` wrote, with a free port, as the working folder."""
    assert call("init", "demo").returncode == 0
    monkeypatch.chdir(folder / "demo")
    monkeypatch.setenv("PERDURE_PORT", "0")
    return folder / "demo"


def change_config(project: Path, **keys: Any) -> None:
    file = project / "perdure.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def test_init_writes_three_files_and_prints_the_next_commands(call: Call, folder: Path) -> None:
    done = call("init", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(file_hashes(folder / "demo")) == FILES
    assert json.loads((folder / "demo" / "perdure.json").read_text()) == {
        "agent": "graph.react:app",
        "checkpointer": "graph.dependencies:my_checkpointer",
    }
    assert "  cd demo\n  perdure serve\n" in done.stdout
    assert "curl -X POST http://127.0.0.1:8000/v1/graph/invoke" in done.stdout


def test_agent_of_a_project_also_runs_on_the_command_line(call_json: CallJson, demo: Path) -> None:
    for text, reply in (("My name is Ann", "your name is Ann"), ("What is my name?", "Your name is Ann.")):
        run = call_json("run", "graph.react:app", text, "--thread", "t", "--store", "sqlite:///t.db")
        assert reply in str(run["outputs"])


def test_init_without_a_name_writes_into_this_folder_also_for_agentflow(call_json: CallJson, folder: Path) -> None:
    (folder / "office.py").unlink()
    assert set(call_json("init", "--agentflow")["files"]) == FILES - {"perdure.json"} | {"agentflow.json"}
    assert set(file_hashes(folder)) == FILES - {"perdure.json"} | {"agentflow.json"}


def test_init_overwrites_files_only_with_force(call: Call, folder: Path) -> None:
    call("init", "demo")
    (folder / "demo" / "graph" / "react.py").write_text("mine")
    (folder / "demo" / "perdure.json").unlink()
    before = file_hashes(folder)
    error = refusal(call("init", "demo"), 1)
    assert error.startswith("graph/react.py and graph/dependencies.py exist already. Nothing was written.")
    assert file_hashes(folder) == before
    assert call("init", "demo", "--force").returncode == 0
    assert "mine" not in (folder / "demo" / "graph" / "react.py").read_text()


def test_init_rejects_a_second_configuration_and_a_file_as_folder(call: Call, folder: Path) -> None:
    (folder / "perdure.toml").write_text('agent = "a:b"')
    assert "perdure.toml exists already" in refusal(call("init", "--force"), 1)
    assert "office.py' is a file" in refusal(call("init", "office.py"), 1)
    assert set(file_hashes(folder)) == {"office.py", "perdure.toml"}


def test_agent_remembers_a_name_in_the_same_thread_only(demo: Path) -> None:
    name = "".join(random.Random(draw_seed()).choices("abcdefghij", k=10)).capitalize()
    replies = [_reply_of_a_process(demo, text) for text in (f"Remember my name is {name}", "What is my name?")]
    assert replies[1] == f"Your name is {name}."
    assert _reply_of_a_process(demo, "What is my name?", thread="other") == "I do not know your name yet."


def _reply_of_a_process(demo: Path, text: str, thread: str = "demo-thread") -> str:
    script = (
        "import asyncio\n"
        "from perdure.server.config.files import load_config\n"
        "from perdure.server.registry import Project\n"
        "from perdure.server.registry import Registry\n"
        "from perdure.server.factory import make_storage\n"
        "async def main():\n"
        "    config = load_config()\n"
        "    project = Project(config.folder)\n"
        "    registry = Registry.of(config, project)\n"
        "    async with make_storage(config, project, registry) as storage:\n"
        f"        options = dict(thread_id={thread!r}, checkpoint_storage=storage)\n"
        f"        done = await registry.default.workflow.run({text!r}, **options)\n"
        "        print(done.get_outputs()[-1].text)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=demo, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


# ---------------------------------------------------------------- doctor


def test_doctor_of_a_new_project_is_all_ok_and_creates_no_file(call_json: CallJson, demo: Path) -> None:
    before = {name for name in file_hashes(demo) if "__pycache__" not in name}
    tree = call_json("doctor", store=None)
    assert (tree["kind"], tree["is_well"]) == ("project", True)
    assert {finding["mark"] for finding in tree["findings"]} == {"ok"}
    assert finding_of(tree, "workflow")["found"] == "react: graph.react:app, the default"
    assert "does not exist yet: the first run creates it" in finding_of(tree, "storage")["found"]
    assert {name for name in file_hashes(demo) if "__pycache__" not in name} == before


def test_doctor_takes_a_project_by_config_and_a_store_by_url(
    call: Call, call_json: CallJson, ids: list[str], demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call_json("doctor", store=None)["kind"] == "project"
    assert call_json("doctor", f"sqlite:///{demo.parent / 'threads.db'}", store=None)["kind"] == "sqlite"
    monkeypatch.chdir(demo.parent)
    assert call_json("doctor")["kind"] == "sqlite"
    assert call_json("doctor", "--config", "demo")["store"] == str(demo)
    assert "--config names a project" in refusal(call("doctor", "threads.db", "--config", "demo", store=None), 2)


@pytest.mark.parametrize(
    ("keys", "check", "problem"),
    [
        ({"agnet": "x"}, "configuration", "perdure.json: agnet: unknown key (did you mean 'agent'?)"),
        ({"agent": "graph.reac:app"}, "project", "(did you mean 'graph.react'?)"),
        ({"agent": "graph.react:re"}, "project", "is a module. perdure runs"),
        ({"checkpointer": "graph.react:app"}, "project", "is a RuleFollower, not a storage"),
        ({"host": "0.0.0.0"}, "auth", "without auth"),
        ({"auth": "jwt"}, "auth", "JWT_SECRET_KEY"),
        ({"auth": {"method": "custom", "path": "no:one"}}, "auth", "no module 'no' exists"),
    ],
)
def test_wrong_project_fails_the_matching_check(call: Call, demo: Path, keys: Any, check: str, problem: str) -> None:
    change_config(demo, **keys)
    done = call("doctor", "--json", store=None)
    assert (done.returncode, done.stderr) == (1, "")
    failed = [finding for finding in json.loads(done.stdout)["findings"] if finding["mark"] == "fail"]
    assert [finding["check"] for finding in failed] == [check]
    assert problem in failed[0]["found"]


def test_taken_port_and_storage_in_memory_get_warnings(
    call_json: CallJson, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("PERDURE_PORT", str(taken.getsockname()[1]))
        monkeypatch.setenv("PERDURE_CHECKPOINTER", "memory:")
        tree = call_json("doctor", store=None)
    assert tree["is_well"]
    assert {finding["check"] for finding in tree["findings"] if finding["mark"] == "warn"} == {"port", "storage"}


def test_unreachable_server_is_reported_without_its_password(call: Call, demo: Path) -> None:
    change_config(
        demo, checkpointer=f"postgresql://me:{PASSWORD}@127.0.0.1:1/x", redis=f"redis://:{PASSWORD}@127.0.0.1:1/0"
    )
    done = call("doctor", "--json", store=None)
    tree = json.loads(done.stdout)
    assert (finding_of(tree, "connection")["mark"], finding_of(tree, "valkey")["mark"]) == ("fail", "warn")
    assert PASSWORD not in done.stdout + done.stderr + call("doctor", store=None).stdout


def test_doctor_checks_a_real_postgresql_and_valkey(
    call_json: CallJson, demo: Path, postgres_dsn: str, valkey_url: str
) -> None:
    change_config(demo, checkpointer=postgres_dsn, redis=valkey_url)
    tree = call_json("doctor", store=None)
    assert tree["storage"]["kind"] == "postgresql"
    assert finding_of(tree, "valkey")["mark"] == "ok"
    assert "does not exist yet: the first use creates it" in finding_of(tree, "schema")["found"]
