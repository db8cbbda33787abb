"""What went wrong, in the words of the command line: one sentence, what to do, no stack trace."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

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
    did_you_mean,
)

_HERE = str(Path(__file__).parent)
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells know it."""


class Mistake(click.ClickException):
    """Ends the command with one sentence and exit code 1."""

    def __init__(self, sentence: str) -> None:
        super().__init__(make_printable(sentence))


def thread_missing(thread_id: str, thread_ids: list[str]) -> Mistake:
    guess = did_you_mean(thread_id, thread_ids)
    return Mistake(f"There is no thread {thread_id!r} in this store{guess}. `perdure threads` lists them.")


def user_code_failed(what: str, error: BaseException) -> Mistake:
    """What a user's own module did, with the place in it."""
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_HERE)]
    where = f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""
    return Mistake(f"{what} failed: {explain(error)}{where}")


def explain(problem: BaseException) -> str:
    """The sentence for an error. Those of perdure whose advice is about Python code get advice about commands."""
    for kind, explain in _EXPLANATIONS.items():
        if isinstance(problem, kind):
            return explain(problem)
    if isinstance(problem, PerdureError):
        return str(problem)
    text = str(problem).strip()
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _explain_busy(problem: ThreadBusy) -> str:
    by = f" by run {problem.run_id!r}" if problem.run_id else ""
    return (
        f"Thread {problem.thread_id!r} is being run{by}. Nothing was written. Wait for it; to take the thread from a "
        "run that hangs, use `perdure resume APP THREAD --takeover`."
    )


def _explain_not_idle(problem: ThreadNotIdle) -> str:
    return (
        f"Thread {problem.thread_id!r} was interrupted, and a new message would overtake what is still due. Nothing "
        f"was written. Resume it first: `perdure resume APP {problem.thread_id}`."
    )


def _explain_not_found(problem: ThreadNotFound) -> str:
    return f"There is no thread {problem.thread_id!r} in this store. `perdure threads` lists them."


def _explain_nothing_pending(problem: NoPendingRequests) -> str:
    return f"Thread {problem.thread_id!r} has no pending requests, so there is nothing to answer. Nothing was written."


def _explain_unknown_request(problem: UnknownRequest) -> str:
    return f"{str(problem).partition(' None of the given')[0]} Nothing was written."


def _explain_incompatible(problem: IncompatibleWorkflow) -> str:
    listed = str(problem).partition("\nNothing was")[0]
    return f"{listed}\nNothing was changed. Is APP the workflow of this thread?"


def _explain_other_input(problem: InputMismatch) -> str:
    message = str(problem).partition(" Resume it with")[0]
    return f"{message} Resume it as it is: `perdure resume APP {problem.execution_id}`; or choose another --thread."


def _explain_no_checkpoint(problem: CheckpointNotFound) -> str:
    return f"There is no checkpoint {problem.checkpoint_id!r} in this store; it may have been pruned."


def _explain_damaged(problem: DamagedCheckpoint) -> str:
    thread_id = problem.thread_id or "THREAD"
    return (
        f"{str(problem).partition(' No older checkpoint')[0]} No older one was used in its place; to go back, name "
        f"one: `perdure rewind {thread_id} CHECKPOINT`. `perdure show {thread_id}` lists them."
    )


def _explain_exists(problem: ThreadExists) -> str:
    return f"Thread {problem.thread_id!r} was not added: {problem.reason}. Nothing was changed. Use --thread ID."


def _explain_wrong_type(problem: WrongStateType) -> str:
    message = str(problem).partition(" Give a value")[0]
    return (
        f"{message} Give a value of the same type, or null; `perdure state CHECKPOINT --key {problem.key} --json` "
        "shows the form."
    )


def _explain_missing_key(problem: MissingKey) -> str:
    with_which = "" if problem.key_id is None else f" with key {problem.key_id!r}"
    return (
        f"{problem.place} is encrypted{with_which}, and that key is missing. Nothing was changed. Put it into "
        "PERDURE_KEYS: id:key,id:key, the one to write with first."
    )


_EXPLANATIONS: dict[type[BaseException], Callable[..., str]] = {
    ThreadBusy: _explain_busy,
    ThreadNotIdle: _explain_not_idle,
    ThreadNotFound: _explain_not_found,
    ThreadExists: _explain_exists,
    CheckpointNotFound: _explain_no_checkpoint,
    DamagedCheckpoint: _explain_damaged,
    MissingKey: _explain_missing_key,
    WrongStateType: _explain_wrong_type,
    NoPendingRequests: _explain_nothing_pending,
    UnknownRequest: _explain_unknown_request,
    IncompatibleWorkflow: _explain_incompatible,
    InputMismatch: _explain_other_input,
}
