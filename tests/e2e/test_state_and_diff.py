"""`perdure state` and `perdure diff`: what is in a checkpoint, which one is meant, and what it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.command import perdure
from tests.e2e.conftest import Call, Told
from tests.e2e.terminal import Screen
from tests.e2e.test_cli import refusal
from tests.e2e.threads import REFUND, ask, damage


def test_state_shows_all_that_is_in_a_checkpoint_and_a_thread_means_its_newest(call: Call, ids: list[str]) -> None:
    question = call("state", ids[1]).stdout.splitlines()
    for line in (
        f"checkpoint  {ids[1]}",
        "thread      r-1",
        f"follows     {ids[0]}",
        "  | Refund(customer='Bob', amount=12)",
        "  refund: Refund(customer='Bob', amount=12)",
    ):
        assert line in question
    assert any(
        line.startswith("  request refund of cashier, expects Verdict, for ada, until 2999") for line in question
    )
    head = call("state", "r-1").stdout
    assert head.startswith(f"checkpoint  {ids[3]}\n")
    assert "outputs\n  cashier: 12 to Bob\n" in head
    assert "goes on with\n  cashier: Refund(customer='Bob', amount=12)\n" in call("state", ids[0]).stdout


def test_state_as_json_has_the_checkpoint_and_what_is_in_it(told: Told, ids: list[str]) -> None:
    known = told("state", ids[1])
    assert (known["checkpoint_id"], known["thread_id"], known["number"]) == (ids[1], "r-1", 2)
    assert (known["previous_checkpoint_id"], known["is_pinned"]) == (ids[0], False)
    assert known["state"] == {"refund": REFUND}
    [request] = known["requests"]
    assert (request["request_id"], request["expects"], request["assignee"]) == ("refund", "Verdict", "ada")
    assert (request["question"], request["deadline"]) == (REFUND, "2999-01-02T03:04:05+00:00")
    assert (known["outputs"], known["due"], known["answers"]) == ([], [], {})
    assert told("state", "r-1")["outputs"] == [{"executor_id": "cashier", "data": "12 to Bob"}]
    [due] = told("state", ids[0])["due"]
    assert (due["executor_id"], due["message"]) == ("cashier", REFUND)


def test_one_key_of_the_state_is_shown_whole(call: Call, told: Told, ids: list[str]) -> None:
    assert told("state", "r-1", "--key", "refund") == REFUND
    assert call("state", "r-1", "--key", "refund").stdout == "Refund(customer='Bob', amount=12)\n"
    said = refusal(call("state", ids[1], "--key", "refunt"), 1)
    assert said == (f"The state of '{ids[1]}' has no key 'refunt' (did you mean 'refund'?). Its keys: 'refund'.\n")
    ask(call, "long", customer="x" * 10_000)
    assert "x" * 10_000 in call("state", "long", "--key", "refund").stdout


def test_state_needs_no_code_of_the_workflow(ids: list[str], folder: Path) -> None:
    (folder / "office.py").unlink()
    done = perdure("state", "r-1", "--json", folder=folder)  # this process has imported the types
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["state"] == {"refund": REFUND}


def test_what_executors_and_sub_workflows_keep_is_shown(call: Call, told: Told) -> None:
    assert call("run", "office:parent", "a text", "--thread", "p").returncode == 0
    shown = call("state", "p").stdout
    assert "kept by executors\n  greeter: {'greeted': ['a text']}\n" in shown
    assert "state of the sub-workflow in inner\n  topic: a text\n" in shown
    known = told("state", "p")
    assert known["executors"]["greeter"]["private"] == {"greeted": ["a text"]}
    [child] = known["sub_workflows"]
    assert (child["executor_id"], child["state"]) == ("inner", {"topic": "a text"})


# ---------------------------------------------------------------- which checkpoint is meant


def test_a_checkpoint_is_known_by_the_beginning_of_its_id(told: Told, ids: list[str]) -> None:
    shortest = next(one for one in (ids[1][:n] for n in range(1, 25)) if sum(i.startswith(one) for i in ids) == 1)
    assert told("state", shortest)["checkpoint_id"] == ids[1]


def test_a_beginning_that_several_have_is_refused_and_they_are_listed(call: Call, ids: list[str]) -> None:
    said = refusal(call("state", ids[0][:4]), 1).splitlines()
    assert said[0] == f"6 checkpoints begin with '{ids[0][:4]}'; give more of the id:"
    assert said[1].startswith(f"  {ids[1]}  commit 2 of r-1, 2")
    assert said[-1] == "  and 1 more"


@pytest.mark.parametrize("command", [["state"], ["diff"], ["diff", "r-1"], ["fork"], ["pin"], ["unpin"]])
def test_what_is_no_checkpoint_and_no_thread_is_named(command: list[str], call: Call, ids: list[str]) -> None:
    said = refusal(call(*command, "r-11"), 1)
    assert said.startswith("There is no checkpoint and no thread 'r-11' in this store (did you mean 'r-1'?).")
    assert "There is no checkpoint and no thread ''" in refusal(call(*command, ""), 1)


def test_a_damaged_checkpoint_is_named_with_the_way_back(call: Call, folder: Path) -> None:
    files = "file:files"
    ask(call, "r-1", customer="Eve", store=files)
    damage(folder / "files")
    said = refusal(call("state", "r-1", store=files), 1)
    assert "of thread 'r-1' cannot be read" in said
    assert "to go back, name one: `perdure rewind r-1 CHECKPOINT`" in said


# ---------------------------------------------------------------- diff


def test_diff_tells_paths_that_were_added_removed_and_changed(call: Call, told: Told, ids: list[str]) -> None:
    lines = call("diff", ids[0], ids[1]).stdout.splitlines()
    assert "~ status: 'IN_PROGRESS' -> 'IDLE_WITH_PENDING_REQUESTS'" in lines
    assert "+ state['refund'] = Refund(customer='Bob', amount=12)" in lines
    found = told("diff", ids[0], ids[1])
    assert (found["before"], found["after"]) == (ids[0], ids[1])
    assert {"path": "state['refund']", "kind": "added", "new": REFUND} in found["changes"]
    assert {"path": "state['refund']", "kind": "removed", "old": REFUND} in told("diff", ids[1], ids[0])["changes"]
    changed = [one for one in found["changes"] if one["kind"] == "changed"]
    assert {"path": "status", "kind": "changed", "old": "IN_PROGRESS", "new": "IDLE_WITH_PENDING_REQUESTS"} in changed


def test_diff_of_one_checkpoint_is_to_the_one_before_it(call: Call, told: Told, ids: list[str]) -> None:
    assert told("diff", ids[1]) == told("diff", ids[0], ids[1])
    assert "+ outputs[0] = WorkflowEvent(type='output', data='12 to Bob', executor_id='cashier')" in (
        call("diff", "r-1").stdout.splitlines()
    )
    said = refusal(call("diff", ids[0]), 1)
    assert said.startswith(f"Checkpoint '{ids[0]}' is the first of thread 'r-1': there is none before it.")


def test_diff_of_the_same_says_that_there_is_none(call: Call, told: Told, ids: list[str]) -> None:
    assert call("diff", ids[1], ids[1]).stdout == "There is no difference.\n"
    assert told("diff", ids[1], ids[1])["changes"] == []


def test_of_long_texts_the_place_where_they_part_is_shown(call: Call) -> None:
    for thread_id, last in (("a", "one"), ("b", "two")):
        ask(call, thread_id, customer=f"{'x' * 500} {last}")
    [line] = [one for one in call("diff", "a", "b").stdout.splitlines() if one.startswith("~ state['refund']")]
    assert line == f"~ state['refund'].customer: ...'{'x' * 19} one' -> ...'{'x' * 19} two'"


def test_a_difference_is_folded_in_a_narrow_terminal_and_one_line_in_a_pipe(
    call: Call, screen: Screen, ids: list[str]
) -> None:
    for columns in (40, 80):
        shown = screen("diff", ids[0], ids[1], columns=columns)
        assert (shown.returncode, shown.width <= columns) == (0, True)
        assert "\x1b[" in shown.raw
    printed = call("diff", ids[0], ids[1]).stdout
    assert "\x1b" not in printed
    assert all(line[:2] in ("+ ", "- ", "~ ") for line in printed.splitlines())
