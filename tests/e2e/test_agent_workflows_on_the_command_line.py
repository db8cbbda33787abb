"""Workflows of agents on the command line: documents, stored definitions, and objects of a module."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest
from tests.e2e.command import COMMAND, STORE, environment
from tests.e2e.conftest import Call, CallJson, forget_modules
from tests.e2e.test_cli import refusal

from perdure import AesGcm
from perdure.storages import open_store

TEAM = """
import asyncio, os
from pathlib import Path
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.testing import Call, ScriptedAgent

async def slowly(seconds: str = "0") -> str:
    print("at work", flush=True)
    await asyncio.sleep(float(os.environ.get("SECONDS", "0")))
    return "looked up"

writer = ScriptedAgent("writer", ["A draft."], log="calls.log")
editor = ScriptedAgent("editor", lambda messages: f"Better: {messages[-1].text}", log="calls.log")
reader = ScriptedAgent("reader", lambda messages: Path("book.txt").read_text(), log="calls.log")
slow = ScriptedAgent("slow", [Call("slowly"), "Done."], tools=[slowly], log="calls.log")

builder = AgentWorkflow.create().with_name("built").add_agent("a", writer)
instance = builder.build()
broken = AgentWorkflow.create().with_name("broken").add_agent("a", writer).from_("a").to("b")

def make():
    return builder

def boom():
    raise RuntimeError("no such luck")
"""
STORY = """
name: story
agents:
  draft: {agent: "team:writer", output_key: draft}
  edit:
    agent: team:editor
    input_key: draft
    approval: {message: "Print it?", description: All of it.}
  never: {agent: "team:writer"}
edges:
  - {from: draft, to: edit, when: {type: is_not_empty, field: draft}}
  - {from: edit, to: never, when: {type: equals, field: answer, value: no}}
"""
READING = """
name: reading
agents:
  read: {agent: "team:reader"}
  beside: {agent: "team:writer"}
"""
APPROVED = '{"approved": true}'


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "team.py").write_text(TEAM)
    (folder / "story.yaml").write_text(STORY)
    (folder / "reading.yaml").write_text(READING)
    (folder / "skipping.yaml").write_text(READING.replace('"team:reader"', '"team:reader", on_error: {mode: skip}'))
    return folder


def calls(folder: Path) -> list[str]:
    log = folder / "calls.log"
    return [json.loads(line)["agent"] for line in log.read_text().splitlines()] if log.exists() else []


# ---------------------------------------------------------------- running a document


def test_document_waits_for_approval_and_completes_after_the_answer(call: Call, folder: Path) -> None:
    asked = call("run", "story.yaml", "Tides", "--thread", "t")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.splitlines() == [
        "thread: t",
        "  draft: runs",
        "  draft: A draft.",
        "  draft: done",
        "  draft -> edit, as draft is not empty",
        "  edit: runs",
        "  edit: Better: A draft.",
        "  edit: asks for approval",
        "waiting for an approval",
        "  request edit-4 of edit",
        "  | Print it?",
        "  | All of it.",
        "  | answer: Better: A draft.",
        f"  answer it: perdure answer t edit-4 '{APPROVED}' --app story.yaml --store {STORE}",
    ]
    answered = call("answer", "t", "edit-4", APPROVED, "--app", "story.yaml", "--by", "ada")
    assert (answered.returncode, answered.stdout.splitlines()) == (
        0,
        [
            "thread: t",
            "  draft: finished before",
            "  edit: approved",
            "  edit: done",
            "  never: skipped: no edge to it was taken (from 'edit')",
            "answer: Better: A draft.",
            "done: nothing is pending",
        ],
    )
    assert "edit-4: answered by ada" in call("show", "t").stdout
    assert calls(folder) == ["writer", "editor"]


def test_denial_skips_the_node_and_prints_the_reason(call: Call) -> None:
    call("run", "story.yaml", "Tides", "--thread", "t")
    refused = call("answer", "t", "edit-4", '{"approved": "perhaps"}', "--app", "story.yaml")
    assert refused.returncode == 1 and "The request is still pending." in refused.stderr
    denied = call("answer", "t", "edit-4", '{"approved": false, "reason": "Too dry."}', "--app", "story.yaml")
    assert "  edit: denied: Too dry.\n  edit: skipped: denied: Too dry.\n" in denied.stdout


def test_ended_execution_does_not_run_again_and_rejects_other_input(call: Call, folder: Path) -> None:
    call("run", "team:instance", "Tides", "--thread", "t")
    again = call("run", "team:instance", "Tides", "--thread", "t")
    assert (
        again.stdout
        == "thread: t\nthe execution ended before: nothing to run\nanswer: A draft.\ndone: nothing is pending\n"
    )
    assert call("resume", "team:instance", "t").stdout == again.stdout
    assert calls(folder) == ["writer"]
    other = refusal(call("run", "team:instance", "Whales", "--thread", "t"), 1)
    assert "it began with 'Tides', and this call has 'Whales'. Nothing was run." in other
    assert "`perdure resume APP t`; or choose another --thread." in other


def test_run_with_json_prints_only_the_final_state(call_json: CallJson) -> None:
    asked = call_json("run", "story.yaml", '{"input": "Tides", "tone": "dry"}', "--json-input", "--thread", "t")
    assert (asked["thread_id"], asked["state"], asked["success"]) == ("t", "waiting", False)
    assert asked["outputs"] == {"draft.draft": "A draft."}
    [request] = asked["requests"]
    assert (request["request_id"], request["node"], request["message"]) == ("edit-4", "edit", "Print it?")
    done = call_json("answer", "t", "edit-4", APPROVED, "--app", "story.yaml")
    assert (done["state"], done["success"], done["final_answer"]) == ("completed", True, "Better: A draft.")
    assert done["outputs"] == {"draft.draft": "A draft.", "edit.answer": "Better: A draft."}


@pytest.mark.parametrize("app", ["team:instance", "team:builder", "team:make"])
def test_app_names_an_instance_a_builder_or_a_factory(app: str, call_json: CallJson) -> None:
    assert call_json("run", app, "Tides", "--thread", "t")["final_answer"] == "A draft."
    assert [thread["workflow_name"] for thread in call_json("threads")] == ["built"]


def test_document_imports_modules_from_its_own_folder(call: Call, folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "team.py").rename(folder / "deep" / "crew.py")
    (folder / "deep" / "one.json").write_text('{"name": "one", "agents": {"a": {"agent": "crew:writer"}}}')
    assert "answer: A draft.\n" in call("run", "deep/one.json", "Tides").stdout


# ---------------------------------------------------------------- failures


def test_failed_run_exits_1_and_resume_repeats_no_finished_node(call: Call, folder: Path) -> None:
    failed = call("run", "reading.yaml", "Tides", "--thread", "t")
    assert failed.returncode == 1
    assert "  beside: done\n" in failed.stdout and "  read: failed: FileNotFoundError: " in failed.stdout
    assert failed.stderr.startswith("Error: The execution stopped: read: FileNotFoundError: ")
    assert f"resume with: perdure resume reading.yaml t --store {STORE}" in failed.stderr
    (folder / "book.txt").write_text("Call me Ishmael.")
    done = call("resume", "reading.yaml", "--thread", "t")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("answer: Call me Ishmael.\n\n  A draft.\ndone: nothing is pending\n")
    assert sorted(calls(folder)) == ["reader", "reader", "writer"]


def test_run_that_skips_a_failed_agent_completes_and_exits_1(call: Call) -> None:
    ended = call("run", "skipping.yaml", "Tides", "--thread", "t", "--json")
    tree = json.loads(ended.stdout)
    assert (ended.returncode, tree["state"], tree["success"], tree["final_answer"]) == (
        1,
        "completed",
        False,
        "A draft.",
    )
    assert ended.stderr.startswith("Error: The execution ended with an error: read: FileNotFoundError: ")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name: story", "name: ["), "story.yaml: line 4, column 8: not YAML: "),
        (("to: edit", "to: edti"), "story.yaml: edges[0].to: no node 'edti' exists (did you mean 'edit'?)"),
        (("input_key: draft", "retry: {max_attempts: three}"), "agents.edit.retry.max_attempts: expected a positive"),
        (("team:editor", "team:edtior"), "agents.edit.agent: 'team' has no 'edtior' (did you mean 'editor'?)"),
        (("team:editor", "nobody:editor"), "agents.edit.agent: 'nobody' cannot be imported"),
        (("team:editor", "team:boom"), "'team:boom' failed to make an agent: RuntimeError: no such luck"),
        (("agents:", "settings: {conversation: {mode: shared}}\nagents:"), "add --sessions FOLDER"),
    ],
)
def test_error_in_a_document_names_file_and_place(
    change: tuple[str, str], sentence: str, call: Call, folder: Path
) -> None:
    (folder / "story.yaml").write_text(STORY.replace(*change))
    error = refusal(call("run", "story.yaml", "Tides"), 1)
    assert "story.yaml" in error.partition(":")[0] and sentence in error
    assert calls(folder) == []


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["run", "stroy.yaml", "x"], 1, "No file 'stroy.yaml' exists (did you mean 'story.yaml'?)."),
        (["run", "team:broken", "x"], 1, "team:broken: edges[0].to: no node 'b' exists"),
        (["run", "team:nothing", "x"], 1, "Its workflows: 'builder', 'instance', 'broken'."),
        (["run", "story.yaml"], 2, "INPUT is missing: the workflow starts with str or dict."),
        (["run", "story.yaml", "[1]", "--json-input"], 2, "INPUT does not fit the workflow"),
        (["resume", "story.yaml"], 2, "Name one thread"),
        (["resume", "story.yaml", "t", "--thread", "t"], 2, "Name one thread"),
        (["run", "office:build", "x", "--sessions", "talk"], 2, "--sessions is for workflows of agents"),
        (["workflows", "save", "office:build"], 2, "'office:build' is a workflow, but not one of agents"),
    ],
)
def test_wrong_arguments_report_an_error_and_create_no_store(
    arguments: list[str], code: int, sentence: str, call: Call, folder: Path
) -> None:
    assert sentence in refusal(call(*arguments), code)
    assert not list(folder.glob("threads.db*"))


def test_sessions_option_names_the_folder_of_conversations(call: Call, folder: Path) -> None:
    talking = STORY.replace("agents:", "settings: {conversation: {mode: shared}}\nagents:", 1)
    (folder / "story.yaml").write_text(talking)
    asked = call("run", "story.yaml", "Tides", "--thread", "t", "--sessions", "talk")
    assert f"--app story.yaml --sessions talk --store {STORE}" in asked.stdout
    assert call("answer", "t", "edit-4", APPROVED, "--app", "story.yaml", "--sessions", "talk").returncode == 0
    assert any((folder / "talk").iterdir())


def test_keys_of_the_environment_encrypt_conversations(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_KEYS", f"k1:{AesGcm.generate_key()}")
    quiet = READING.replace("agents:", "settings: {conversation: {mode: shared}}\nagents:", 1)
    (folder / "reading.yaml").write_text(quiet.replace("team:reader", "team:editor"))
    assert call("run", "reading.yaml", "Secret tides", "--thread", "t", "--sessions", "talk").returncode == 0
    kept = b"".join(path.read_bytes() for path in (folder / "talk").rglob("*") if path.is_file())
    assert kept and b"Secret" not in kept and b"draft" not in kept


# ---------------------------------------------------------------- ownership and interruptions


def test_resume_of_a_running_thread_needs_takeover(call: Call) -> None:
    call("run", "story.yaml", "Tides", "--thread", "t")

    async def hold() -> None:
        async with open_store(STORE) as storage:
            await storage.store.open("t", "somebody")

    asyncio.run(hold())
    refused = refusal(call("resume", "story.yaml", "t"), 1)
    assert "Thread 't' is being run by run 'somebody'. Nothing was written." in refused
    assert call("resume", "story.yaml", "t", "--takeover").returncode == 0


def test_run_rejects_a_thread_of_another_workflow(call: Call) -> None:
    call("run", "team:instance", "Tides", "--thread", "t")
    refused = refusal(call("run", "story.yaml", "Tides", "--thread", "t"), 1)
    assert "the workflow was called 'built' and is called 'story'" in refused
    assert "Nothing was changed. Is APP the workflow of this thread?" in refused


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGINT for one process")
def test_ctrl_c_stops_the_run_and_prints_the_resume_command(call: Call, folder: Path) -> None:
    (folder / "slow.json").write_text('{"name": "slow", "agents": {"a": {"agent": "team:slow"}}}')
    with subprocess.Popen(
        [COMMAND, "run", "slow.json", "Tides", "--thread", "t"],
        cwd=folder,
        env=environment(PERDURE_STORE=STORE, SECONDS="60"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert any("at work" in line for line in process.stdout), "it ended before"
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 130
    assert f"Finished work is kept. Resume with: perdure resume slow.json t --store {STORE}" in errors
    assert "answer: Done.\n" in call("resume", "slow.json", "t").stdout
    assert calls(folder) == ["slow", "slow", "slow", "slow"], "the model twice, and the tool once more"


# ---------------------------------------------------------------- stored definitions


def test_definition_is_saved_listed_shown_run_by_name_and_deleted(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    assert call("workflows", "save", "story.yaml").stdout == "Stored definition story: version 1.0.0, number 1.\n"
    assert "has not changed: it is version 1.0.0, number 1." in call("workflows", "save", "story.yaml").stdout
    (folder / "story.yaml").write_text(STORY.replace("name: story", "name: story\nversion: '1.1'"))
    assert call_json("workflows", "save", "story.yaml")["is_new"] is True
    (folder / "story.yaml").unlink()

    [listed] = call_json("workflows", "list")
    assert (listed["name"], listed["version"], listed["number"]) == ("story", "1.1", 2)
    whole = call_json("workflows", "show", "story", "--version", "1")
    assert (whole["number"], whole["version"], len(whole["versions"])) == (1, "1.0.0", 2)
    assert whole["config"]["agents"]["draft"] == {"agent": "team:writer", "output_key": "draft"}
    assert "    agent: team:writer\n" in call("workflows", "show", "story").stdout

    assert call_json("run", "story", "Tides", "--thread", "t")["state"] == "waiting"
    assert call_json("resume", "story@1.1", "t")["state"] == "waiting"
    assert call_json("answer", "t", "edit-4", APPROVED, "--app", "story")["final_answer"] == "Better: A draft."
    assert call_json("run", "story@1", "Tides", "--thread", "u")["state"] == "waiting"

    assert "add --yes" in refusal(call("workflows", "delete", "story"), 2)
    assert call("workflows", "delete", "story", "--yes").stdout == "Deleted definition story. Its executions stay.\n"
    assert call_json("workflows", "list") == []
    assert sorted(thread["thread_id"] for thread in call_json("threads")) == ["t", "u"]


def test_thread_resumes_with_the_definition_version_it_started_with(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    call("workflows", "save", "story.yaml")
    assert call_json("run", "story", "Tides", "--thread", "t")["state"] == "waiting"
    (folder / "story.yaml").write_text(
        STORY.replace("{type: is_not_empty, field: draft}", "{type: exists, field: draft}")
    )
    assert call_json("workflows", "save", "story.yaml")["number"] == 2

    assert "edge" in refusal(call("resume", "story@2", "t"), 1)
    assert call_json("answer", "t", "edit-4", APPROVED, "--app", "story")["final_answer"] == "Better: A draft."


def test_unknown_definition_error_suggests_existing_names_and_versions(call: Call) -> None:
    call("workflows", "save", "story.yaml")
    for wrong in (["show", "stroy"], ["delete", "stroy", "--yes"]):
        assert "No definition 'stroy' exists in this store (did you mean 'story'?)" in refusal(
            call("workflows", *wrong), 1
        )
    assert "has no version 7; its versions: 1 (1.0.0)." in refusal(
        call("workflows", "show", "story", "--version", "7"), 1
    )
    unknown = refusal(call("run", "stroy", "x"), 2)
    assert "or the name of a definition in the store; got 'stroy'. No definition 'stroy' exists" in unknown
    assert "(did you mean 'story'?)" in unknown


def test_save_rejects_an_agent_that_no_module_names(call: Call, call_json: CallJson, folder: Path) -> None:
    (folder / "odd.py").write_text(TEAM.replace('add_agent("a", writer)', 'add_agent("a", ScriptedAgent("x", ["x"]))'))
    assert "agents.a.agent: " in refusal(call("workflows", "save", "odd:builder"), 1)
    forget_modules(folder)
    assert call_json("workflows", "list") == []


def test_damaged_definition_is_reported_and_the_others_are_listed(call: Call, folder: Path) -> None:
    for document in ("story.yaml", "reading.yaml"):
        call("workflows", "save", document, store="file:kept")
    [file] = [path for path in (folder / "kept").iterdir() if "reading" in path.name and path.suffix == ".jsonl"]
    file.write_bytes(file.read_bytes().replace(b"team:reader", b"team:render"))
    listed = call("workflows", "list", store="file:kept")
    assert listed.returncode == 1 and "story" in listed.stdout
    assert "Definition 'reading' cannot be read: " in listed.stderr
    assert "Definition 'reading' cannot be read: " in refusal(call("run", "reading", "x", store="file:kept"), 1)
    assert call("run", "story", "Tides", store="file:kept").returncode == 0
