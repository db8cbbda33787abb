"""The outcome of each executor, from the events of a thread or run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from perdure.events import WorkflowEvent

COMPLETED, RUNNING, FAILED, SKIPPED, WAITING, DUE = "completed", "running", "failed", "skipped", "waiting", "due"

OUTCOMES: Final = (COMPLETED, RUNNING, WAITING, DUE, SKIPPED, FAILED)
"""Every outcome, in the order of a legend."""

_STATES = {
    "executor_invoked": RUNNING,
    "executor_retrying": RUNNING,
    "executor_completed": COMPLETED,
    "executor_bypassed": COMPLETED,
    "executor_failed": FAILED,
    "executor_skipped": SKIPPED,
}

_OF_A_WHOLE = (FAILED, RUNNING, WAITING, DUE, COMPLETED, SKIPPED)
"""Precedence of outcomes inside a sub-workflow: the first that occurs is that of the whole."""


def outcomes_of(events: Iterable[WorkflowEvent]) -> dict[str, str]:
    """The last outcome of each executor, by path (`sub/inner`). Executors without events are left out.

    An executor waits while a request of its own is unanswered; called again, it is taken to have got an answer. What
    ran in a superstep that was discarded is due again, except for what failed. A sub-workflow has the outcome of what
    is inside it, unless it failed or was skipped itself.
    """
    reading = _Reading()
    for event in events:
        reading.take(event)
    return _with_enclosing(reading.outcomes())


class _Reading:
    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._asked: dict[str, list[str]] = {}
        """Open requests of each executor, the oldest first."""
        self._touched: dict[str, list[str]] = {}
        """Executors of this superstep, with the requests that they had open before it."""

    def outcomes(self) -> dict[str, str]:
        waiting = {path for path, open_requests in self._asked.items() if open_requests}
        return {
            path: WAITING if state == COMPLETED and path in waiting else state for path, state in self._states.items()
        }

    def take(self, event: WorkflowEvent) -> None:
        path = event.executor_id or event.source_executor_id
        if event.type == "superstep_started":
            self._touched = {}
        elif event.type == "superstep_discarded":
            self._discard()
        elif event.type == "failed" and event.details is not None and event.details.executor_id is not None:
            self._states[event.details.executor_id] = FAILED
        elif path is not None:
            self._take(path, event)

    def _take(self, path: str, event: WorkflowEvent) -> None:
        requests = self._asked.setdefault(path, [])
        if event.type in _STATES or event.type == "request_info":
            self._touched.setdefault(path, list(requests))
        if event.type == "request_info":
            if event.request_id not in requests:
                requests.append(str(event.request_id))
            self._states.setdefault(path, COMPLETED)  # a replayed event: the run did not call the executor
        elif event.type == "executor_invoked":
            del requests[:1]
        elif event.type == "error":  # an expired request
            expired = getattr(event.data, "request_id", None)
            self._asked[path] = [request for request in requests if request != expired]
        if event.type in _STATES:
            self._states[path] = _STATES[event.type]

    def _discard(self) -> None:
        for path, requests in self._touched.items():
            self._asked[path] = requests
            if self._states.get(path) != FAILED:
                self._states[path] = DUE
        self._touched = {}


def _with_enclosing(outcomes: dict[str, str]) -> dict[str, str]:
    inside: dict[str, set[str]] = {}
    for path, outcome in outcomes.items():
        for end, character in enumerate(path):
            if character == "/":
                inside.setdefault(path[:end], set()).add(outcome)
    whole = {path: next(state for state in _OF_A_WHOLE if state in states) for path, states in inside.items()}
    own = {path: outcome for path, outcome in outcomes.items() if path in inside and outcome in (FAILED, SKIPPED)}
    return {**outcomes, **whole, **own}
