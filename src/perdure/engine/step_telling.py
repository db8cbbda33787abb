"""What is told about the steps of one delivery: where they are, what was replayed, what the code does otherwise now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.engine.calls import Call, name_in
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.records import Record

if TYPE_CHECKING:
    from perdure.engine.delivery import Delivery


class StepTelling:
    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._lane = delivery.lane

    def path(self, call: Call) -> str:
        return f"{self._lane.steps_path}{call.name}"

    def tell(self, kind: str, call: Call, data: Any = None, error: Exception | None = None) -> None:
        path = self.path(call)
        details = None if error is None else WorkflowErrorDetails.from_exception(error, executor_id=path)
        self._delivery.tell(WorkflowEvent(kind, data, executor_id=path, details=details))

    def is_news(self, call: Call, record: Record) -> bool:
        """Whether the replay is worth telling: once a run, of what another run recorded. A delivery that sleeps a lot
        runs from the top a lot."""
        scope = self._lane.scope
        mark = (self._delivery.message.delivery_id, call.key)
        if record.run_id == scope.run_id or mark in scope.bypassed:
            return False
        scope.bypassed.add(mark)
        return True

    def warn_if_moved(self, call: Call, record: Record) -> None:
        if record.after != call.after:
            then, now = (_named(key) for key in (record.after, call.after))
            self._warn(
                f"Step {call.name!r} of {self._lane.told_id!r} was recorded {then} and is now reached {now}: the code "
                "changed since. Its recorded result was used."
            )

    def warn_of_unreached(self, names: Sequence[str]) -> None:
        if names:
            shown = ", ".join(repr(name) for name in dict.fromkeys(names))
            self._warn(
                f"{self._lane.told_id!r} ended without reaching what it had recorded: {shown}. The code changed since, "
                "or does not do the same every time; the recorded results were not used."
            )

    def _warn(self, text: str) -> None:
        event = WorkflowEvent("warning", text, executor_id=self._lane.told_id)
        self._delivery.tell_once(self._lane.in_child(event))


def _named(key: str | None) -> str:
    return "at the beginning" if key is None else f"after {name_in(key)!r}"
