"""`perdure fork` and `perdure rewind`: another thread from a checkpoint, or the same thread at an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.command import perdure, running
from tests.e2e.conftest import Call, CallJson
from tests.e2e.terminal import Screen
from tests.e2e.test_cli import refusal
from tests.e2e.test_run_and_answer import WORK
from tests.e2e.threads import REFUND, answer, checkpoints_of

CHEAPER = json.dumps({**REFUND, "amount": 5})


def test_fork_continues_from_the_checkpoint_and_keeps_its_thread_unchanged(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    done = call("fork", ids[1], "--thread", "copy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"Thread copy begins with checkpoint {ids[1]}, commit 2 of r-1.",
        "Continue with: perdure resume APP copy --store sqlite:///threads.db",
    ]
    assert [thread["standing"] for thread in call_json("threads")] == ["idle", "waiting", "waiting"]
    answer(call, "copy")
    assert call_json("state", "copy")["outputs"] == [{"executor_id": "cashier", "data": "12 to Bob"}]
    assert checkpoints_of(call_json, "r-1") == ids


def test_fork_with_set_continues_with_the_changed_state(call: Call, call_json: CallJson, ids: list[str]) -> None:
    made = call_json("fork", ids[1], "--set", f"refund={CHEAPER}", "--set", 'note=["of \\"ours\\"", null]')
    assert (made["number"], made["previous_checkpoint_id"], made["workflow_name"]) == (1, ids[1], "refunds")
    assert call_json("state", made["thread_id"])["state"] == {
        "refund": {**REFUND, "amount": 5},
        "note": ['of "ours"', None],
    }
    answer(call, made["thread_id"])


def test_fork_with_remove_leaves_out_keys_of_the_state(call_json: CallJson, ids: list[str]) -> None:
    made = call_json("fork", "r-1", "--remove", "refund")
    assert (made["previous_checkpoint_id"], call_json("state", made["thread_id"])["state"]) == (ids[3], {})


def test_fork_needs_no_code_and_keeps_the_types_of_the_workflow(ids: list[str], folder: Path) -> None:
    (folder / "office.py").rename(folder / "elsewhere.py")
    done = perdure("fork", ids[1], "--thread", "copy", "--set", f"refund={CHEAPER}", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "elsewhere.py").rename(folder / "office.py")
    verdict = '{"approved": true}'
    answered = perdure("answer", "copy", "refund", verdict, "--app", "office:refunds", folder=folder)
    assert "output of cashier: 12 to Bob" in answered.stdout  # the changed state does not change the request


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--set", "refund"], 2, "--set: expected KEY=JSON, such as 'limit=50', got 'refund'."),
        (["--set", "=5"], 2, "--set: expected KEY=JSON"),
        (["--set", "refund=Bob"], 2, """A text is JSON, too, in quotes: --set 'refund="Bob"'."""),
        (["--set", 'refund={"$type": "datetime"}'], 2, "--set: Cannot read the value of 'refund'"),
        (["--set", "a=1", "--remove", "a"], 2, "--set and --remove both name 'a': give it a value, or remove it."),
        (["--thread", ""], 2, "--thread: an id has at least one character."),
        (
            ["--set", "refund=5"],
            1,
            "is office:Refund, and the new value is int. Nothing was written. Give a value of the",
        ),
        (["--set", 'refund={"customer": "Eve"}'], 1, "`perdure state CHECKPOINT --key refund --json` shows the form."),
        (["--remove", "refunt"], 1, "--remove names 'refunt', which is not in the state of checkpoint"),
        (["--thread", "r-2"], 1, "Thread 'r-2' was not added: the store has a thread with that id."),
    ],
)
def test_wrong_fork_is_rejected_and_creates_no_thread(
    options: list[str], code: int, sentence: str, call: Call, call_json: CallJson, ids: list[str]
) -> None:
    before = call_json("threads")
    assert sentence in refusal(call("fork", ids[1], *options), code)
    assert call_json("threads") == before


# ---------------------------------------------------------------- rewind


def test_rewind_asks_the_question_again_and_keeps_the_old_branch(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    done = call("rewind", "r-1", ids[1], "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == (
        "Commit 5 rewinds thread r-1 to commit 2. The commits in between are now a branch."
    )
    answer(call, "r-1")
    main, left = call_json("show", "r-1")["branches"]
    assert (main["leads_to_head"], main["leaves"], len(main["checkpoints"])) == (True, None, 5)
    assert (left["leads_to_head"], left["leaves"], left["checkpoints"]) == (False, ids[1], ids[2:])
    shown = call("show", "r-1", "--branches").stdout
    assert "checkpoints (7, on 2 branches)\n" in shown
    assert all(checkpoint_id in shown for checkpoint_id in checkpoints_of(call_json, "r-1"))
    assert "\n|/\n" in shown
    notes = [line for line in call("show", "r-1").stdout.splitlines() if line.endswith("on another branch")]
    assert [line.split()[0] for line in notes] == ids[2:]


def test_rewind_with_json_prints_the_new_head(call_json: CallJson, ids: list[str]) -> None:
    made = call_json("rewind", "r-1", ids[0], "--yes")
    assert (made["number"], made["previous_checkpoint_id"]) == (5, ids[0])
    assert call_json("show", "r-1")["checkpoint_id"] == made["checkpoint_id"]


def test_rewind_asks_for_confirmation_at_a_terminal(screen: Screen, call_json: CallJson, ids: list[str]) -> None:
    refused = screen("rewind", "r-1", ids[1], answer="n")
    assert refused.returncode == 1
    assert refused.text.startswith("Rewind thread r-1 from commit 4 to commit 2 of 2")
    assert refused.text.endswith("? [y/N]: n\nError: Not confirmed. Nothing was done.\n")
    assert checkpoints_of(call_json, "r-1") == ids
    done = screen("rewind", "r-1", ids[1])
    assert (done.returncode, len(checkpoints_of(call_json, "r-1"))) == (0, 5)


def test_rewind_without_a_terminal_needs_yes(call: Call, call_json: CallJson, ids: list[str]) -> None:
    error = refusal(call("rewind", "r-1", ids[1]), 2)
    assert error == "This needs a confirmation and no terminal is attached: add --yes. Nothing was done.\n"
    assert checkpoints_of(call_json, "r-1") == ids


def test_rewind_rejects_a_checkpoint_that_the_thread_does_not_have(
    call: Call, call_json: CallJson, ids: list[str]
) -> None:
    [other, _] = checkpoints_of(call_json, "r-2")
    for named, sentence in (
        (other, f"Checkpoint '{other}' belongs to thread 'r-2', not to 'r-1'. Nothing was changed.\n"),
        ("nothing", "Thread 'r-1' has no checkpoint 'nothing'. `perdure show r-1` lists the newest.\n"),
        ("r-1", "Thread 'r-1' has no checkpoint 'r-1'. `perdure show r-1` lists the newest.\n"),
    ):
        assert refusal(call("rewind", "r-1", named, "--yes"), 1) == sentence
    assert refusal(call("rewind", "r-1", ids[0][:3], "--yes"), 1).startswith("4 checkpoints begin with")
    error = refusal(call("rewind", "r-3", ids[1], "--yes"), 1)
    assert error.startswith("No thread 'r-3' exists in this store (did you mean 'r-2'?).")
    assert checkpoints_of(call_json, "r-1") == ids


def test_rewind_of_a_running_thread_needs_takeover(call: Call, call_json: CallJson, folder: Path) -> None:
    (folder / "hold").touch()
    with running(*WORK, folder=folder, until="work: runs") as process:
        first, *_ = checkpoints_of(call_json, "t")
        error = refusal(call("rewind", "t", first, "--yes"), 1)
        assert error.startswith("Thread 't' is being run by run 'run-")
        assert error.endswith("to take the thread from a run that hangs, add --takeover.\n")
        assert call_json("fork", first, "--thread", "copy")["thread_id"] == "copy"  # a fork only reads the thread

        assert call("rewind", "t", first, "--yes", "--takeover").returncode == 0
        process.kill()
    assert call_json("state", "t")["previous_checkpoint_id"] == first
    (folder / "hold").unlink()
    assert "output of work: worked on A TEXT" in call("resume", "office:build", "t").stdout
