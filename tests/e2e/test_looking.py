"""`perdure threads`, `requests` and `show` read a store without the code of its workflows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.command import in_terminal, needs_pseudo_terminals, perdure
from tests.e2e.conftest import Call, CallJson

EVIL = "Bob \x1b]0;owned\x07 [bold]red[/bold]"
FILES = "file:files"


def ask(call: Call, thread_id: str, customer: str = "Bob", **options: Any) -> None:
    refund = json.dumps({"customer": customer, "amount": 12})
    done = call("run", "office:refunds", refund, "--json-input", "--thread", thread_id, **options)
    assert done.returncode == 0, done.stderr


def test_stored_data_is_readable_without_the_code_of_the_workflow(call: Call, folder: Path) -> None:
    ask(call, "r-1")
    (folder / "office.py").unlink()

    def read_json(*arguments: str) -> Any:
        """The JSON of another process, because this process has imported the types."""
        done = perdure(*arguments, "--json", folder=folder)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    refund = {"$type": "office:Refund", "customer": "Bob", "amount": 12}
    [request] = read_json("requests")
    assert (request["thread_id"], request["request_id"], request["executor_id"]) == ("r-1", "refund", "cashier")
    assert (request["question"], request["expects"]) == (refund, "Verdict")
    assert (request["assignee"], request["deadline"]) == ("ada", "2999-01-02T03:04:05+00:00")
    known = read_json("show", "r-1", "--events")
    assert known["state"] == {"refund": refund}
    assert known["requests"] == [request]
    assert [checkpoint["number"] for checkpoint in known["checkpoints"]] == [1, 2]
    assert [event["seq"] for event in known["events"]] == list(range(1, len(known["events"]) + 1))
    assert [event["data"] for event in known["events"] if event["type"] == "request_info"] == [refund]


def test_threads_and_requests_print_tables(call: Call, call_json: CallJson) -> None:
    ask(call, "r-1")
    call("run", "office:build", "a text", "--thread", "w-1")
    headers, *rows = call("threads").stdout.splitlines()
    assert headers.split() == ["THREAD", "WORKFLOW", "STANDING", "MOVED", "DUE"]
    assert [row.split()[:3] for row in rows] == [["r-1", "refunds", "waiting"], ["w-1", "works", "idle"]]
    assert "2999-01-0" in rows[0]
    [_, row] = call("requests").stdout.splitlines()
    assert row.endswith("Verdict  Refund(customer='Bob', amount=12)")

    [listed] = call_json("threads", "--workflow", "refunds")
    assert (listed["thread_id"], listed["status"]) == ("r-1", "IDLE_WITH_PENDING_REQUESTS")
    assert [thread["thread_id"] for thread in call_json("threads", "--limit", "1")] == ["w-1"]
    assert call_json("requests", "--workflow", "works") == []


def test_empty_store_prints_that_it_has_no_threads_and_no_requests(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    (folder / "threads.db").touch()
    assert call("threads").stdout == "No threads.\n"
    assert call("requests").stdout == "No pending requests.\n"
    assert call_json("threads") == call_json("requests") == []


def test_show_prints_standing_requests_state_and_checkpoints(call: Call) -> None:
    ask(call, "r-1")
    shown = call("show", "r-1").stdout
    for line in (
        "thread    r-1",
        "workflow  refunds",
        "standing  waiting (IDLE_WITH_PENDING_REQUESTS)",
        "  | Refund(customer='Bob', amount=12)",
        "  refund: Refund(customer='Bob', amount=12)",
        "checkpoints (2)",
    ):
        assert line in shown.splitlines()
    assert "request_info         cashier   request refund: Refund(customer='Bob', amount=12)" in shown


def test_show_names_the_person_who_answered(call: Call, call_json: CallJson) -> None:
    ask(call, "r-1")
    call("answer", "r-1", "refund", '{"approved": false}', "--app", "office:refunds", "--by", "ada")
    known = call_json("show", "r-1")
    assert known["outputs"] == [{"executor_id": "cashier", "data": "refused"}]
    assert (known["answers"]["refund"]["how"], known["answers"]["refund"]["answered_by"]) == ("answered", "ada")
    assert "  refund: answered by ada, 2" in call("show", "r-1").stdout


@needs_pseudo_terminals
@pytest.mark.parametrize("columns", [30, 72, 140])
def test_tables_fit_the_terminal_and_show_whole_ids(columns: int, call: Call, folder: Path) -> None:
    thread_id = "01a1deb7b2db-95db357120a8a3b5"  # the form of generated ids
    ask(call, thread_id, customer="Bob " * 30)
    for command in ("threads", "requests"):
        shown, code = in_terminal(command, folder=folder, columns=columns)
        assert code == 0
        assert max(map(len, shown.splitlines())) <= columns
        assert thread_id in "".join(shown.split())


@needs_pseudo_terminals
def test_stored_control_characters_do_not_reach_the_terminal(call: Call, folder: Path) -> None:
    call("run", "office:titles", EVIL, "--thread", f"t {EVIL}")
    for command in (["requests"], ["show", f"t {EVIL}"]):
        shown, code = in_terminal(*command, folder=folder, columns=200)
        assert code == 0
        assert "A title for Bob \\x1b]0;owned\\x07 [bold]red[/bold]?" in shown
        assert "\x1b" not in shown  # in_terminal removes the colours of the command
        assert "\x07" not in shown


def test_damaged_thread_is_reported_and_the_others_are_shown(call: Call, call_json: CallJson, folder: Path) -> None:
    ask(call, "sound", store=FILES)
    ask(call, "broken", customer="Eve", store=FILES)
    [file] = [path for path in (folder / "files").glob("*.jsonl") if b"Eve" in path.read_bytes()]
    file.write_bytes(file.read_bytes().replace(b"Eve", b"Ada"))

    shown = call("show", "broken", store=FILES)
    assert shown.returncode == 1
    assert "standing  waiting" in shown.stdout
    assert "of thread 'broken' cannot be read" in shown.stderr
    questions = {request["thread_id"]: request["question"] for request in call_json("requests", store=FILES)}
    assert questions == {"sound": {"$type": "office:Refund", "customer": "Bob", "amount": 12}, "broken": None}
