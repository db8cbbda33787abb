"""The sub-workflows of one run: opened when something is due in them, limited in time, forgotten when they end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from perdure.engine.guards import NOT_ITS_OWN, enclosing, guard_of, timed_out
from perdure.engine.lane import Lane
from perdure.engine.level import Level, child_level
from perdure.engine.position import Child, every_level
from perdure.engine.scope import RunScope
from perdure.errors import DuplicateRequest, StateConflict, SubWorkflowFailed, WorkflowConvergenceException
from perdure.events import WorkflowErrorDetails, WorkflowEvent


class Nesting:
    def __init__(self, scope: RunScope) -> None:
        self._thread = scope.thread
        self._now = scope.clock.now
        self._emit = scope.emit
        self._deadlines: dict[int, datetime] = {}
        """Children whose executor has a timeout -> when their time is over. It counts while a run works on them."""

    @property
    def next_deadline(self) -> datetime | None:
        return min(self._deadlines.values(), default=None)

    def open_child(self, parent: Level, child: Child) -> Level | None:
        """None if nothing is due in it. Raises if it took too long, unless its own policy meets that."""
        now, child_id = self._now(), child.message.delivery_id
        deadline = self._deadlines.get(child_id)
        if not child.is_due(now) and (deadline is None or deadline > now):
            return None
        level = child_level(parent, child, self._thread)
        seconds = level.policy.timeout
        if seconds is not None:
            level.deadline = self._deadlines.setdefault(child_id, now + timedelta(seconds=seconds))
        limit = level.compiled.graph.max_iterations
        if level.deadline is not None and level.deadline <= now:
            level.failure = timed_out(level)
        elif level.position.mailbox and level.position.since_input >= limit:
            level.failure = WorkflowConvergenceException(self._thread.thread_id, limit)
        if level.failure is not None and guard_of(level, level.failure) is not level:
            parent.levels = [level]  # where the failure is looked for
            raise level.failure
        return level

    def failure(self, root: Level, lane: Lane | None, error: BaseException) -> SubWorkflowFailed | None:
        """A failure in a sub-workflow is one of the executors that it runs in, up to the thread's own workflow.

        None for one that happened elsewhere.
        """
        level = lane.level if lane is not None else _failed_level(root, error)
        failure: SubWorkflowFailed | None = None
        if isinstance(error, NOT_ITS_OWN):
            return None
        for one in enclosing(level) if level is not None and isinstance(error, Exception) else ():
            failure = SubWorkflowFailed(one.told_id, one.compiled.graph.name, error)
            details = WorkflowErrorDetails.from_exception(error, executor_id=one.told_id)
            above = None if one.parent is None else one.parent.child_id
            self._emit(WorkflowEvent("executor_failed", executor_id=one.told_id, details=details, child_id=above))
        return failure

    def forget_ended(self) -> None:
        """Children that are not there any more need no executors."""
        alive = {child_id for level in every_level(self._thread.position) for child_id in level.children}
        for child_id in self._thread.children.keys() - alive:
            self._forget(child_id)

    def superstep_ended(self, level: Level) -> None:
        """A child that failed is tried again with executors that know nothing of it; one that had to wait for others to
        end is given that time back."""
        for child in level.levels:
            if child.failure is not None and child.child_id is not None:
                self._forget(child.child_id)
            elif child.ended_at is not None and child.child_id in self._deadlines:
                self._deadlines[child.child_id] += self._now() - child.ended_at
            self.superstep_ended(child)

    def _forget(self, child_id: int) -> None:
        self._thread.children.pop(child_id, None)
        self._deadlines.pop(child_id, None)


def _failed_level(level: Level, error: BaseException) -> Level | None:
    """The sub-workflow that the error ended, however deep; None if it was none of them."""
    if level.failure is error:
        return level
    found = (_failed_level(inner, error) for inner in level.levels)
    return next((one for one in found if one is not None), None)


def lanes_in_conflict(root: Level, lanes: Iterable[Lane], error: StateConflict | DuplicateRequest) -> list[Lane]:
    """Those whose outcomes cannot be merged. Executors of other levels may have the same ids."""
    where = _failed_level(root, error) or root
    inside = [lane for lane in lanes if where is root or where in enclosing(lane.level)]
    return [lane for lane in inside if lane.told_id.removeprefix(where.path) in error.executors]
