"""Errors: one tree, a stable code each, sentences that state the problem and the remedy."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any, Union

import pytest
from tests.parsing import ROOT

from perdure import errors
from perdure.errors import PerdureError, did_you_mean, type_name

EVERY = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PerdureError)]

CODES = (
    "agent_failed already_answered answer_not_usable answer_rejected approval_timed_out checkpoint "
    "checkpoint_hook_failed checkpoint_not_found checkpoint_pinned context_ended conversation_not_found "
    "cursor_expired damaged_checkpoint damaged_definition damaged_store definition_not_found duplicate_executor_id "
    "duplicate_request edge_duplication error execution_not_found graph_connectivity handler_cancelled "
    "incompatible_workflow input_mismatch invalid_definition invalid_function invalid_run invalid_selection "
    "migration_failed missing_extra missing_key missing_program missing_secret newer_format no_convergence "
    "no_event_log no_pending_requests no_response_handler no_storage no_thread_file not_in_async_code "
    "plaintext_refused pool_exhausted predicate_failed request request_expired request_withdrawn run_interrupted "
    "runner state_conflict step_arguments_unsavable step_name_taken storage_failed store_unavailable "
    "sub_workflow_failed thread_busy thread_conflict thread_exists thread_not_found thread_not_idle timed_out "
    "type_compatibility unknown_executor unknown_request unreadable_value unsavable_value unsupported_id "
    "usage_limit_reached validation workflow wrong_input_type wrong_state_type"
)
"""Programs of users compare these: a code never changes."""

EXAMPLES: dict[type[PerdureError], tuple[Any, ...]] = {
    errors.EdgeDuplicationError: ("a->b",),
    errors.TypeCompatibilityError: ("a", "b", [str], [int]),
    errors.GraphConnectivityError: ("No path. Add an edge.",),
    errors.DuplicateExecutorId: ("a",),
    errors.WorkflowValidationError: ("Wrong. Do this.", errors.ValidationTypeEnum.OUTPUT_VALIDATION),
    errors.NoStorage: ("Reading",),
    errors.UnknownExecutor: ("a", ["b"], "A message"),
    errors.NoPendingRequests: ("t",),
    errors.UnknownRequest: ("r", "t", ["s"]),
    errors.AlreadyAnswered: ("r", "t"),
    errors.AnswerRejected: ("r", int, "5", "why"),
    errors.NoResponseHandler: ("a", str, int),
    errors.RequestExpired: ("r", "a", "noon"),
    errors.WrongInputType: ("a", 5, [str]),
    errors.WorkflowConvergenceException: ("t", 100),
    errors.StateConflict: ("key", "a", "b"),
    errors.MissingSecret: ("key",),
    errors.ThreadBusy: ("t", "r"),
    errors.ThreadNotIdle: ("t", 2),
    errors.ThreadConflict: ("t", "commit 2", "commit 3"),
    errors.CursorExpired: ("t", 1, 5),
    errors.CheckpointNotFound: ("c",),
    errors.ThreadNotFound: ("t",),
    errors.IncompatibleWorkflow: ("c", "w", ["executor 'a' is gone"]),
    errors.DamagedCheckpoint: ("c", "it is torn"),
    errors.CheckpointHookFailed: ("a", "on_checkpoint_save", "it raised"),
    errors.StorageFailed: ("MyStorage", "save", "it raised"),
    errors.StoreUnavailable: ("MyStore", "save", "it raised"),
    errors.PoolExhausted: ("MyStore", "save", "it raised"),
    errors.TimedOut: ("a", 3),
    errors.ApprovalTimedOut: ("a", 3),
    errors.UnsavableValue: ("state['x']", "it is a lock", "Leave it out."),
    errors.UnreadableValue: ("state['x']", "it is not declared", "Declare it."),
}


def test_every_error_has_a_code_of_its_own() -> None:
    assert " ".join(sorted(kind.code for kind in EVERY)) == CODES


def test_subclass_of_a_user_has_the_code_of_its_error() -> None:
    class MyBusy(errors.ThreadBusy):
        pass

    assert MyBusy.code == "thread_busy"


def test_the_tree_in_the_reference_is_the_whole_tree() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    drawn: dict[str, set[str]] = {}
    above: list[str] = []
    for line in page.partition("```text\n")[2].partition("```")[0].splitlines():
        branch, name, builtins = re.fullmatch(r"([├─│└ ]*)(\w+) *(.*)", line).groups()  # type: ignore[union-attr]
        above[len(branch) // 4 :] = [name]
        drawn[name] = {*above[-2:-1], *builtins.split()}
    actual = {kind.__name__: {base.__name__ for base in kind.__bases__} for kind in EVERY}
    assert drawn == {**actual, "PerdureError": set()}


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InvalidRun, ValueError),
        (errors.NoStorage, ValueError),
        (errors.UnknownExecutor, ValueError),
        (errors.DuplicateExecutorId, ValueError),
        (errors.NoPendingRequests, RuntimeError),
        (errors.UnknownRequest, ValueError),
        (errors.AlreadyAnswered, ValueError),
        (errors.AnswerRejected, ValueError),
        (errors.NoResponseHandler, ValueError),
        (errors.WrongInputType, RuntimeError),
        (errors.InvalidSelection, RuntimeError),
        (errors.ThreadBusy, RuntimeError),
        (errors.ThreadNotIdle, RuntimeError),
        (errors.UnsavableValue, TypeError),
        (errors.NotInAsyncCode, RuntimeError),
    ],
)
def test_errors_are_subclasses_of_the_builtins_that_the_reference_raises(
    kind: type[PerdureError], builtin: type
) -> None:
    assert issubclass(kind, builtin)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in EVERY
        if kind not in (errors.NotInAsyncCode, errors.MissingProgram, errors.MissingExtra, PerdureError)
        and not issubclass(kind, errors.AgentFailed)  # an agent needs no workflow
    ],
)
def test_every_error_about_a_workflow_is_a_workflow_exception(kind: type[PerdureError]) -> None:
    assert issubclass(kind, errors.WorkflowException)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_message_is_made_of_sentences_and_names_its_subject(kind: type[PerdureError]) -> None:
    first, *_ = arguments = EXAMPLES[kind]
    error = kind(*arguments)
    assert str(first) in str(error) and str(error).rstrip().endswith((".", ")."))
    assert error.code == kind.code


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_error_can_cross_a_process_boundary(kind: type[PerdureError]) -> None:
    error = kind(*EXAMPLES[kind])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and vars(again) == vars(error)


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (str, "str"),
        (None, "None"),
        (type(None), "None"),
        (list[int], "list[int]"),
        (int | None, "int | None"),
        (Union[int, str], "Union[int, str]"),
        (Any, "Any"),
        (PerdureError, "PerdureError"),
    ],
)
def test_type_names_are_shown_as_users_write_them(annotation: Any, name: str) -> None:
    assert type_name(annotation) == name


def test_near_name_is_suggested_and_a_far_name_is_not() -> None:
    assert did_you_mean("reviewr", ["writer", "reviewer"]) == " (did you mean 'reviewer'?)"
    assert did_you_mean("x", ["writer"]) == ""
