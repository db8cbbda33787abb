"""`perdure state` and `perdure diff`: the content of a checkpoint, how to name it, and what it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.command import perdure
from tests.e2e.conftest import Call, CallJson
from tests.e2e.terminal import Screen
from tests.e2e.test_cli import refusal
from tests.e2e.threads import REFUND, ask, damage


def test_state_shows_a_checkpoint_or_the_newest_of_a_thread(call: Call, ids: list[str]) -> None:
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
    assert "continues with\n  cashier: Refund(customer='Bob', amount=12)\n" in call("state", ids[0]).stdout


def test_state_with_json_has_the_checkpoint_and_its_content(call_json: CallJson, ids: list[str]) -> None:
    known = call_json("state", ids[1])
    assert (known["checkpoint_id"], known["thread_id"], known["number"]) == (ids[1], "r-1", 2)
    assert (known["previous_checkpoint_id"], known["is_pinned"]) == (ids[0], False)
    assert known["state"] == {"refund": REFUND}
    [request] = known["requests"]
    assert (request["request_id"], request["expects"], request["assignee"]) == ("refund", "Verdict", "ada")
    assert (request["question"], request["deadline"]) == (REFUND, "2999-01-02T03:04:05+00:00")
    assert (known["outputs"], known["due"], known["answers"]) == ([], [], {})
    assert call_json("state", "r-1")["outputs"] == [{"executor_id": "cashier", "data": "12 to Bob"}]
    [due] = call_json("state", ids[0])["due"]
    assert (due["executor_id"], due["message"]) == ("cashier", REFUND)


def test_state_with_key_shows_the_whole_value(call: Call, call_json: CallJson, ids: list[str]) -> None:
    assert call_json("state", "r-1", "--key", "refund") == REFUND
    assert call("state", "r-1", "--key", "refund").stdout == "Refund(customer='Bob', amount=12)\n"
    error = refusal(call("state", ids[1], "--key", "refunt"), 1)
    assert error == (f"The state of '{ids[1]}' has no key 'refunt' (did you mean 'refund'?). Its keys: 'refund'.\n")
    ask(call, "long", customer="x" * 10_000)
    assert "x" * 10_000 in call("state", "long", "--key", "refund").stdout


def test_state_needs_no_code_of_the_workflow(ids: list[str], folder: Path) -> None:
    (folder / "office.py").unlink()
    done = perdure("state", "r-1", "--json", folder=folder)  # this process has imported the types
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["state"] == {"refund": REFUND}


def test_state_shows_the_state_of_executors_and_sub_workflows(call: Call, call_json: CallJson) -> None:
    assert call("run", "office:parent", "a text", "--thread", "p").returncode == 0
    shown = call("state", "p").stdout
    assert "kept by executors\n  greeter: {'greeted': ['a text']}\n" in shown
    assert "state of the sub-workflow in inner\n  topic: a text\n" in shown
    known = call_json("state", "p")
    assert known["executors"]["greeter"]["private"] == {"greeted": ["a text"]}
    [child] = known["sub_workflows"]
    assert (child["executor_id"], child["state"]) == ("inner", {"topic": "a text"})


# ---------------------------------------------------------------- names of checkpoints


def test_unique_prefix_of_an_id_names_the_checkpoint(call_json: CallJson, ids: list[str]) -> None:
    prefixes = (ids[1][:length] for length in range(1, 25))
    shortest = next(prefix for prefix in prefixes if sum(id_.startswith(prefix) for id_ in ids) == 1)
    assert call_json("state", shortest)["checkpoint_id"] == ids[1]


def test_ambiguous_prefix_of_an_id_is_rejected_with_a_list(call: Call, ids: list[str]) -> None:
    lines = refusal(call("state", ids[0][:4]), 1).splitlines()
    assert lines[0] == f"6 checkpoints begin with '{ids[0][:4]}'; enter more of the id:"
    assert lines[1].startswith(f"  {ids[1]}  commit 2 of r-1, 2")
    assert lines[-1] == "  and 1 more"


@pytest.mark.parametrize("command", [["state"], ["diff"], ["diff", "r-1"], ["fork"], ["pin"], ["unpin"]])
def test_error_names_an_unknown_checkpoint_or_thread(command: list[str], call: Call, ids: list[str]) -> None:
    error = refusal(call(*command, "r-11"), 1)
    assert error.startswith("No checkpoint and no thread 'r-11' exists in this store (did you mean 'r-1'?).")
    assert "No checkpoint and no thread '' exists" in refusal(call(*command, ""), 1)


def test_error_for_a_damaged_checkpoint_names_the_rewind_command(call: Call, folder: Path) -> None:
    files = "file:files"
    ask(call, "r-1", customer="Eve", store=files)
    damage(folder / "files")
    error = refusal(call("state", "r-1", store=files), 1)
    assert "of thread 'r-1' cannot be read" in error
    assert "to go back, name one: `perdure rewind r-1 CHECKPOINT`" in error


# ---------------------------------------------------------------- diff


def test_diff_lists_added_removed_and_changed_paths(call: Call, call_json: CallJson, ids: list[str]) -> None:
    lines = call("diff", ids[0], ids[1]).stdout.splitlines()
    assert "~ status: 'IN_PROGRESS' -> 'IDLE_WITH_PENDING_REQUESTS'" in lines
    assert "+ state['refund'] = Refund(customer='Bob', amount=12)" in lines
    diff = call_json("diff", ids[0], ids[1])
    assert (diff["before"], diff["after"]) == (ids[0], ids[1])
    assert {"path": "state['refund']", "kind": "added", "new": REFUND} in diff["changes"]
    assert {"path": "state['refund']", "kind": "removed", "old": REFUND} in call_json("diff", ids[1], ids[0])["changes"]
    changed = [change for change in diff["changes"] if change["kind"] == "changed"]
    assert {"path": "status", "kind": "changed", "old": "IN_PROGRESS", "new": "IDLE_WITH_PENDING_REQUESTS"} in changed


def test_diff_of_a_single_checkpoint_compares_with_the_previous(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    assert call_json("diff", ids[1]) == call_json("diff", ids[0], ids[1])
    assert "+ outputs[0] = WorkflowEvent(type='output', data='12 to Bob', executor_id='cashier')" in (
        call("diff", "r-1").stdout.splitlines()
    )
    error = refusal(call("diff", ids[0]), 1)
    assert error.startswith(f"Checkpoint '{ids[0]}' is the first of thread 'r-1': no checkpoint precedes it.")


def test_diff_of_equal_checkpoints_prints_no_difference(call: Call, call_json: CallJson, ids: list[str]) -> None:
    assert call("diff", ids[1], ids[1]).stdout == "The checkpoints do not differ.\n"
    assert call_json("diff", ids[1], ids[1])["changes"] == []


def test_diff_of_long_texts_shows_where_they_differ(call: Call) -> None:
    for thread_id, last in (("a", "one"), ("b", "two")):
        ask(call, thread_id, customer=f"{'x' * 500} {last}")
    [line] = [row for row in call("diff", "a", "b").stdout.splitlines() if row.startswith("~ state['refund']")]
    assert line == f"~ state['refund'].customer: ...'{'x' * 19} one' -> ...'{'x' * 19} two'"


def test_diff_folds_lines_in_a_terminal_and_not_in_a_pipe(call: Call, screen: Screen, ids: list[str]) -> None:
    for columns in (40, 80):
        shown = screen("diff", ids[0], ids[1], columns=columns)
        assert (shown.returncode, shown.width <= columns) == (0, True)
        assert "\x1b[" in shown.raw
    printed = call("diff", ids[0], ids[1]).stdout
    assert "\x1b" not in printed
    assert all(line[:2] in ("+ ", "- ", "~ ") for line in printed.splitlines())
