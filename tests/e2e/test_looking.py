"""`perdure threads`, `requests` and `show`: what is stored, read without the code that made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.command import in_terminal, needs_pseudo_terminals, perdure
from tests.e2e.conftest import Call, Told

EVIL = "Bob \x1b]0;owned\x07 [bold]red[/bold]"
FILES = "file:files"


def ask(call: Call, thread_id: str, customer: str = "Bob", **options: Any) -> None:
    refund = json.dumps({"customer": customer, "amount": 12})
    done = call("run", "office:refunds", refund, "--json-input", "--thread", thread_id, **options)
    assert done.returncode == 0, done.stderr


def test_what_is_stored_is_readable_without_the_code_that_made_it(call: Call, folder: Path) -> None:
    ask(call, "r-1")
    (folder / "office.py").unlink()

    def seen(*arguments: str) -> Any:
        """By another process: this one has imported the types."""
        done = perdure(*arguments, "--json", folder=folder)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    refund = {"$type": "office:Refund", "customer": "Bob", "amount": 12}
    [request] = seen("requests")
    assert (request["thread_id"], request["request_id"], request["executor_id"]) == ("r-1", "refund", "cashier")
    assert (request["question"], request["expects"]) == (refund, "Verdict")
    assert (request["assignee"], request["deadline"]) == ("ada", "2999-01-02T03:04:05+00:00")
    known = seen("show", "r-1", "--events")
    assert known["state"] == {"refund": refund}
    assert known["requests"] == [request]
    assert [one["number"] for one in known["checkpoints"]] == [1, 2]
    assert [one["seq"] for one in known["events"]] == list(range(1, len(known["events"]) + 1))
    assert [one["data"] for one in known["events"] if one["type"] == "request_info"] == [refund]


def test_threads_and_requests_are_tables_for_people(call: Call, told: Told) -> None:
    ask(call, "r-1")
    call("run", "office:build", "a text", "--thread", "w-1")
    headers, *rows = call("threads").stdout.splitlines()
    assert headers.split() == ["THREAD", "WORKFLOW", "STANDING", "MOVED", "DUE"]
    assert [row.split()[:3] for row in rows] == [["r-1", "refunds", "waiting"], ["w-1", "works", "idle"]]
    assert "2999-01-0" in rows[0]
    [_, row] = call("requests").stdout.splitlines()
    assert row.endswith("Verdict  Refund(customer='Bob', amount=12)")

    [listed] = told("threads", "--workflow", "refunds")
    assert (listed["thread_id"], listed["status"]) == ("r-1", "IDLE_WITH_PENDING_REQUESTS")
    assert [one["thread_id"] for one in told("threads", "--limit", "1")] == ["w-1"]
    assert told("requests", "--workflow", "works") == []


def test_a_store_without_anything_in_it_says_so(call: Call, told: Told, folder: Path) -> None:
    (folder / "threads.db").touch()
    assert call("threads").stdout == "There are no threads.\n"
    assert call("requests").stdout == "There are no pending requests.\n"
    assert told("threads") == told("requests") == []


def test_show_tells_where_a_thread_stands_what_it_asks_and_what_is_in_it(call: Call) -> None:
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


def test_who_answered_is_kept(call: Call, told: Told) -> None:
    ask(call, "r-1")
    call("answer", "r-1", "refund", '{"approved": false}', "--app", "office:refunds", "--by", "ada")
    known = told("show", "r-1")
    assert known["outputs"] == [{"executor_id": "cashier", "data": "refused"}]
    assert (known["answers"]["refund"]["how"], known["answers"]["refund"]["answered_by"]) == ("answered", "ada")
    assert "  refund: answered by ada, 2" in call("show", "r-1").stdout


@needs_pseudo_terminals
@pytest.mark.parametrize("columns", [30, 72, 140])
def test_in_a_terminal_nothing_is_wider_than_it_is_and_no_id_is_cut(columns: int, call: Call, folder: Path) -> None:
    thread_id = "01a1deb7b2db-95db357120a8a3b5"  # as they are made
    ask(call, thread_id, customer="Bob " * 30)
    for command in ("threads", "requests"):
        shown, code = in_terminal(command, folder=folder, columns=columns)
        assert code == 0
        assert max(map(len, shown.splitlines())) <= columns
        assert thread_id in "".join(shown.split())


@needs_pseudo_terminals
def test_what_users_stored_cannot_change_the_terminal(call: Call, folder: Path) -> None:
    call("run", "office:titles", EVIL, "--thread", f"t {EVIL}")
    for command in (["requests"], ["show", f"t {EVIL}"]):
        shown, code = in_terminal(*command, folder=folder, columns=200)
        assert code == 0
        assert "A title for Bob \\x1b]0;owned\\x07 [bold]red[/bold]?" in shown
        assert "\x1b" not in shown  # its own colours are left out already
        assert "\x07" not in shown


def test_a_damaged_thread_is_named_and_the_others_are_still_shown(call: Call, told: Told, folder: Path) -> None:
    ask(call, "sound", store=FILES)
    ask(call, "broken", customer="Eve", store=FILES)
    [file] = [one for one in (folder / "files").glob("*.jsonl") if b"Eve" in one.read_bytes()]
    file.write_bytes(file.read_bytes().replace(b"Eve", b"Ada"))

    shown = call("show", "broken", store=FILES)
    assert shown.returncode == 1
    assert "standing  waiting" in shown.stdout
    assert "of thread 'broken' cannot be read" in shown.stderr
    questions = {one["thread_id"]: one["question"] for one in told("requests", store=FILES)}
    assert questions == {"sound": {"$type": "office:Refund", "customer": "Bob", "amount": 12}, "broken": None}
