"""What happened to each executor, from events alone."""

from __future__ import annotations

import pytest

from perdure import RequestExpired, WorkflowErrorDetails, WorkflowEvent
from perdure.graph.drawing.picture import outcomes_of


def event(kind: str, path: str) -> WorkflowEvent:
    return WorkflowEvent(kind, executor_id=path)


def asks(path: str, request_id: str) -> WorkflowEvent:
    return WorkflowEvent("request_info", request_id=request_id, source_executor_id=path)


def events_of(*kinds: str, path: str = "a") -> list[WorkflowEvent]:
    return [event(kind, path) for kind in kinds]


STARTED, DISCARDED = WorkflowEvent("superstep_started"), WorkflowEvent("superstep_discarded")
CALLED, ENDED = event("executor_invoked", "a"), event("executor_completed", "a")


@pytest.mark.parametrize(
    ("kinds", "outcome"),
    [
        (["executor_invoked"], "running"),
        (["executor_invoked", "executor_completed"], "completed"),
        (["executor_invoked", "executor_failed"], "failed"),
        (["executor_invoked", "executor_failed", "executor_retrying"], "running"),
        (["executor_invoked", "executor_failed", "executor_skipped"], "skipped"),
        (["executor_bypassed"], "completed"),
        (["executor_failed", "executor_invoked", "executor_completed"], "completed"),
    ],
)
def test_last_event_determines_the_outcome(kinds: list[str], outcome: str) -> None:
    assert outcomes_of(events_of(*kinds)) == {"a": outcome}


def test_executors_without_events_have_no_outcome() -> None:
    assert outcomes_of([WorkflowEvent("started"), STARTED, WorkflowEvent("output", executor_id="a")]) == {}


def test_an_executor_waits_until_it_is_called_with_the_answer() -> None:
    asked = [CALLED, asks("a", "r1"), ENDED]
    assert outcomes_of(asked) == {"a": "waiting"}
    assert outcomes_of([*asked, CALLED]) == {"a": "running"}
    assert outcomes_of([*asked, CALLED, ENDED]) == {"a": "completed"}


def test_executor_waits_while_one_of_several_requests_is_open() -> None:
    asked = [CALLED, asks("a", "r1"), asks("a", "r2"), ENDED, CALLED, ENDED]
    assert outcomes_of(asked) == {"a": "waiting"}
    assert outcomes_of([*asked, CALLED, ENDED]) == {"a": "completed"}


def test_repeated_request_event_is_the_same_request() -> None:
    assert outcomes_of([CALLED, asks("a", "r1"), ENDED, asks("a", "r1"), CALLED, ENDED]) == {"a": "completed"}
    assert outcomes_of([asks("a", "r1")]) == {"a": "waiting"}


def test_a_request_that_expired_is_not_waited_for() -> None:
    expired = WorkflowEvent("error", RequestExpired("r1", "t", "a"), executor_id="a")
    assert outcomes_of([CALLED, asks("a", "r1"), ENDED, expired]) == {"a": "completed"}


def test_executors_of_a_discarded_superstep_are_due_again_unless_failed() -> None:
    events = [STARTED, *events_of("executor_invoked", "executor_completed", path="before"), STARTED]
    events += [CALLED, *events_of("executor_invoked", "executor_completed", path="b"), event("executor_invoked", "c")]
    events += [asks("a", "r1"), asks("a", "r2"), event("executor_failed", "c"), DISCARDED]
    assert outcomes_of(events) == {"before": "completed", "a": "due", "b": "due", "c": "failed"}
    assert outcomes_of([*events, CALLED, ENDED])["a"] == "completed"  # its questions were taken back


def test_the_error_of_a_run_names_the_executor_that_failed() -> None:
    failed = WorkflowEvent("failed", details=WorkflowErrorDetails("ValueError", "no", executor_id="sub/a"))
    assert outcomes_of([failed]) == {"sub/a": "failed", "sub": "failed"}


def test_sub_workflow_has_the_outcome_of_its_executors() -> None:
    started = [*events_of("executor_invoked", "executor_completed", path="sub"), event("executor_invoked", "sub/in/a")]
    assert outcomes_of(started) == {"sub": "running", "sub/in": "running", "sub/in/a": "running"}
    ended = [*started, event("executor_completed", "sub/in/a"), asks("sub/b", "r1")]
    assert outcomes_of(ended) == {"sub": "waiting", "sub/in": "completed", "sub/in/a": "completed", "sub/b": "waiting"}


def test_skipped_sub_workflow_has_the_outcome_skipped() -> None:
    events = [
        *events_of("executor_failed", path="sub/a"),
        *events_of("executor_failed", "executor_skipped", path="sub"),
    ]
    assert outcomes_of(events) == {"sub/a": "failed", "sub": "skipped"}
