"""Errors in the words of the command line: one sentence, what to do, no stack trace."""

from __future__ import annotations

from collections.abc import Callable

import click

from perdure.cli.values import make_printable
from perdure.errors import (
    CheckpointNotFound,
    DamagedCheckpoint,
    IncompatibleWorkflow,
    InputMismatch,
    MissingKey,
    NoPendingRequests,
    PerdureError,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
    ThreadNotIdle,
    UnknownRequest,
    WrongStateType,
)

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells know it."""


class Mistake(click.ClickException):
    """Ends the command with one sentence and exit code 1."""

    def __init__(self, sentence: str) -> None:
        super().__init__(make_printable(sentence))


def explain(problem: BaseException) -> str:
    """The sentence for an error. Those of perdure whose advice is about Python code get advice about commands."""
    for kind, explain_kind in _EXPLANATIONS.items():
        if isinstance(problem, kind):
            return explain_kind(problem)
    if isinstance(problem, PerdureError):
        return str(problem)
    text = str(problem).strip()
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def busy(thread_id: str, run_id: str | None, changed: str, way_out: str) -> str:
    by = f" by run {run_id!r}" if run_id else ""
    return (
        f"Thread {thread_id!r} is being run{by}. Nothing was {changed}. Wait for it; to take the thread from a run "
        f"that hangs, {way_out}."
    )


def _before(problem: PerdureError, advice: str) -> str:
    """The message without its advice about Python code."""
    return str(problem).partition(advice)[0]


def _explain_damaged(problem: DamagedCheckpoint) -> str:
    thread_id = problem.thread_id or "THREAD"
    return (
        f"{_before(problem, ' No older checkpoint')} No older one was used in its place; to go back, name "
        f"one: `perdure rewind {thread_id} CHECKPOINT`. `perdure show {thread_id}` lists them."
    )


_EXPLANATIONS: dict[type[BaseException], Callable[..., str]] = {
    ThreadBusy: lambda problem: busy(
        problem.thread_id, problem.run_id, "written", "use `perdure resume APP THREAD --takeover`"
    ),
    ThreadNotIdle: lambda problem: (
        f"Thread {problem.thread_id!r} was interrupted, and a new message would overtake what is still due. Nothing "
        f"was written. Resume it first: `perdure resume APP {problem.thread_id}`."
    ),
    ThreadNotFound: lambda problem: (
        f"No thread {problem.thread_id!r} exists in this store. `perdure threads` lists them."
    ),
    ThreadExists: lambda problem: (
        f"Thread {problem.thread_id!r} was not added: {problem.reason}. Nothing was changed. Use --thread ID."
    ),
    CheckpointNotFound: lambda problem: (
        f"No checkpoint {problem.checkpoint_id!r} exists in this store; it may have been pruned."
    ),
    DamagedCheckpoint: _explain_damaged,
    MissingKey: lambda problem: (
        f"{_before(problem, ' missing.')} missing. Nothing was changed. Put it into PERDURE_KEYS: id:key,id:key, the "
        "one to write with first."
    ),
    WrongStateType: lambda problem: (
        f"{_before(problem, ' Give a value')} Give a value of the same type, or null; `perdure state CHECKPOINT --key "
        f"{problem.key} --json` shows the form."
    ),
    NoPendingRequests: lambda problem: (
        f"Thread {problem.thread_id!r} has no pending requests, so there is nothing to answer. Nothing was written."
    ),
    UnknownRequest: lambda problem: f"{_before(problem, ' None of the given')} Nothing was written.",
    IncompatibleWorkflow: lambda problem: (
        _before(problem, "\nNothing was") + "\nNothing was changed. Is APP the workflow of this thread?"
    ),
    InputMismatch: lambda problem: (
        f"{_before(problem, ' Resume it with')} Resume it as it is: `perdure resume APP {problem.execution_id}`; or "
        "choose another --thread."
    ),
}
