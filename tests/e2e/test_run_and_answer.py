"""`perdure run`, `resume` and `answer` move threads from the command line, in one process after the other."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

from tests.e2e.command import COMMAND, STORE, environment, in_terminal, needs_pseudo_terminals, perdure, running
from tests.e2e.conftest import Call, CallJson

REFUND = ("run", "office:refunds", '{"customer": "Bob", "amount": 12}', "--json-input", "--thread", "r-1")
WORK = ("run", "office:build", "a text", "--thread", "t")


def commands_in(text: str) -> list[list[str]]:
    """The arguments of each command that the text proposes."""
    return [shlex.split(command)[1:] for command in re.findall(r"perdure (?:answer|resume) .*$", text, re.MULTILINE)]


def test_run_prints_its_thread_first_and_then_its_progress(call: Call) -> None:
    done = call(*WORK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "thread: t",
        "superstep 1",
        "  read: runs",
        "  read: done",
        "superstep 2",
        "  work: runs",
        "output of work: worked on A TEXT",
        "  work: done",
        "done: nothing is pending",
    ]
    assert call("resume", "office:build", "t").stdout.splitlines() == [
        "thread: t",
        "output of work, replayed: worked on A TEXT",
        "done: nothing is pending",
    ]


def test_run_creates_a_thread_id_and_durability_exit_saves_at_the_end(call: Call, call_json: CallJson) -> None:
    done = call("run", "office:build", "a text", "--durability", "exit")
    [thread] = call_json("threads")
    assert done.stdout.splitlines()[0] == f"thread: {thread['thread_id']}"
    assert [entry["iteration_count"] for entry in call_json("show", thread["thread_id"])["checkpoints"]] == [0, 2]


def test_printed_answer_command_works_in_another_process(folder: Path) -> None:
    asked = perdure(*REFUND, folder=folder)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "waiting for an answer" in asked.stdout
    assert "request refund of cashier, expects Verdict, for ada, until 2999-01-0" in asked.stdout
    assert "| Refund(customer='Bob', amount=12)" in asked.stdout
    [command] = commands_in(asked.stdout)
    assert command[:4] == ["answer", "r-1", "refund", '{"approved": true}']

    answered = perdure(*command, folder=folder, store=None)
    assert (answered.returncode, answered.stderr) == (0, "")
    assert "output of cashier: 12 to Bob" in answered.stdout
    again = perdure(*command, folder=folder, store=None)
    assert again.returncode == 1
    assert "Request 'refund' of thread 'r-1' was answered before" in again.stderr


def test_answer_of_the_wrong_type_is_rejected_and_the_request_stays(call: Call, call_json: CallJson) -> None:
    call(*REFUND)
    for value, reason in (
        ("yes", "got 'yes' (Expected `object`, got `str`). The request is still pending. VALUE is JSON, such as"),
        ('{"approved": 1}', "(Expected `bool`, got `int` - at `$.approved`). The request is still pending.\n"),
    ):
        done = call("answer", "r-1", "refund", value, "--app", "office:refunds")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: The answer to request 'refund' was not accepted: expected Verdict")
        assert reason in done.stderr
    assert [request["request_id"] for request in call_json("requests")] == ["refund"]


def test_run_with_json_prints_only_the_final_state(call: Call, call_json: CallJson, folder: Path) -> None:
    asked = call_json(*REFUND)
    assert (asked["thread_id"], asked["status"], asked["outputs"]) == ("r-1", "IDLE_WITH_PENDING_REQUESTS", [])
    assert [request["request_id"] for request in asked["requests"]] == ["refund"]
    assert call_json("resume", "office:refunds", "r-1")["requests"] == asked["requests"]
    done = call_json("answer", "r-1", "refund", '{"approved": true}', "--app", "office:refunds")
    assert (done["status"], done["requests"]) == ("IDLE", [])
    assert done["outputs"] == [{"executor_id": "cashier", "data": "12 to Bob"}]
    assert done["checkpoint_id"] == call_json("show", "r-1")["checkpoint_id"]
    (folder / "broken").touch()
    failed = call(*WORK, "--json")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("Error: Executor 'work' failed: ConnectionError: nobody answers.")


def test_answer_to_a_request_for_text_is_not_parsed_as_json(call: Call) -> None:
    call("run", "office:titles", "tides", "--thread", "t")
    assert "output of titles: 5: tides" in call("answer", "t", "title", "5", "--app", "office:titles").stdout


def test_failed_run_prints_one_sentence_and_its_command_resumes_it(call: Call, folder: Path) -> None:
    (folder / "broken").touch()
    failed = perdure(*WORK, folder=folder)
    assert failed.returncode == 1
    assert "  work: failed: ConnectionError: nobody answers" in failed.stdout
    assert failed.stderr.startswith("Error: Executor 'work' failed: ConnectionError: nobody answers.")
    assert "Traceback" not in failed.stdout + failed.stderr
    assert "in work\n" in call("show", "t", "--events").stdout  # the stack trace

    (folder / "broken").unlink()
    [command] = commands_in(failed.stderr.replace(" (the stack trace", "\n"))
    resumed = call(*command, store=None)
    assert resumed.returncode == 0
    assert "read: runs" not in resumed.stdout
    assert "output of work: worked on A TEXT" in resumed.stdout


def test_ctrl_c_stops_a_run_and_the_printed_command_resumes_it(call: Call, call_json: CallJson, folder: Path) -> None:
    (folder / "hold").touch()
    with running(*WORK, folder=folder, until="work: runs") as process:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Interrupted. Finished work is kept. Resume with: " in errors
    assert [thread["standing"] for thread in call_json("threads")] == ["cancelled"]

    (folder / "hold").unlink()
    late = call("run", "office:build", "another", "--thread", "t")
    assert late.returncode == 1
    assert "a new message would overtake what is still due" in late.stderr
    [command] = commands_in(errors)
    assert "output of work: worked on A TEXT" in call(*command, store=None).stdout


def test_killed_run_is_interrupted_at_once_and_resumes_by_thread_id(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    (folder / "hold").touch()
    with running(*WORK, folder=folder, until="work: runs") as process:
        assert [thread["standing"] for thread in call_json("threads")] == ["running"]
        process.kill()
        process.wait()
        assert [thread["standing"] for thread in call_json("threads")] == ["interrupted"]
    (folder / "hold").unlink()
    resumed = call("resume", "office:build", "t")
    assert "read: runs" not in resumed.stdout
    assert "output of work: worked on A TEXT" in resumed.stdout


def test_resume_of_a_busy_thread_needs_takeover(call: Call, call_json: CallJson, folder: Path) -> None:
    (folder / "hold").touch()
    with running(*WORK, folder=folder, until="work: runs") as process:
        refused = call("resume", "office:build", "t")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("Error: Thread 't' is being run by run 'run-")

        (folder / "hold").unlink()
        taken = call("resume", "office:build", "t", "--takeover")
        assert taken.returncode == 0
        assert "output of work: worked on A TEXT" in taken.stdout
        process.send_signal(signal.SIGINT)  # the store rejects its last commit
        process.communicate(timeout=60)
    assert [thread["standing"] for thread in call_json("threads")] == ["idle"]


def test_run_with_a_closed_output_pipe_stops_without_an_error_message(call_json: CallJson, folder: Path) -> None:
    (folder / "hold").touch()
    reader, pipe = os.pipe()
    os.close(reader)
    named = environment(PERDURE_STORE=STORE)
    done = subprocess.run(
        [COMMAND, *WORK], cwd=folder, env=named, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(pipe)
    assert (done.returncode, done.stderr) == (1, "")
    assert [thread["standing"] for thread in call_json("threads")] == ["cancelled"]


def test_run_uses_the_named_store_then_the_workflows_then_the_folders(
    call: Call, call_json: CallJson, folder: Path
) -> None:
    run_kept = ["run", "office:kept", "a text", "--thread"]
    assert call(*run_kept, "own", store=None).returncode == 0
    assert call(*run_kept, "named", "--store", "file:other", store=None).returncode == 0
    (folder / "perdure.db").touch()
    assert call("run", "office:build", "a text", "--thread", "default", store=None).returncode == 0
    for store, thread_id in (("file:own", "own"), ("file:other", "named"), (None, "default")):
        assert [thread["thread_id"] for thread in call_json("threads", store=store)] == [thread_id]


@needs_pseudo_terminals
def test_run_in_a_terminal_prints_the_same_lines(folder: Path) -> None:
    shown, code = in_terminal("run", "office:titles", "tides", "--thread", "t", folder=folder)
    assert code == 0
    assert shown.startswith("thread: t\nsuperstep 1\n  titles: runs\n")
    assert "| A title for tides?" in shown
