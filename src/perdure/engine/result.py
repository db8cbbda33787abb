"""WorkflowRunResult: what one run did, and what it gave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.events import WorkflowEvent, WorkflowRunState


class WorkflowRunResult(list[WorkflowEvent]):
    """The run's events in order; `status` events only if asked for. Outputs since the last outside input are all
    here, those from before an interruption marked `replayed`."""

    def __init__(
        self,
        events: Iterable[WorkflowEvent],
        status_events: list[WorkflowEvent],
        outputs: list[WorkflowEvent],
        requests: list[WorkflowEvent],
        *,
        thread_id: str,
        run_id: str,
        checkpoint_id: str | None,
        usage: dict[str, int] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(events)
        self._status_events = status_events
        # As committed: in the order of the deliveries, whichever sibling was quicker, so that a resumed run gives
        # the same.
        self._outputs = outputs
        self._requests = requests
        self.thread_id = thread_id
        self.run_id = run_id
        self.checkpoint_id = checkpoint_id
        """Where the thread stands now; None without a storage."""
        self.usage: dict[str, int] = usage or {}
        """What the thread's agents used since it began: tokens and the like, by name."""
        self.about: dict[str, Any] = about or {}
        """What is said of the thread: what `workflow.describe` was given."""

    @property
    def outputs(self) -> list[WorkflowEvent]:
        """`output` and `intermediate` events since the last outside input, in the order of the deliveries."""
        return list(self._outputs)

    def get_outputs(self) -> list[Any]:
        return [event.data for event in self._outputs if event.type == "output"]

    def get_intermediate_outputs(self) -> list[Any]:
        return [event.data for event in self._outputs if event.type == "intermediate"]

    def get_request_info_events(self) -> list[WorkflowEvent]:
        """Requests that are pending now, those asked earlier included."""
        return list(self._requests)

    def get_final_state(self) -> WorkflowRunState:
        """How the run ended."""
        if not self._status_events or self._status_events[-1].state is None:
            raise RuntimeError("This result has no final state: the run did not end.")
        return self._status_events[-1].state

    def status_timeline(self) -> list[WorkflowEvent]:
        return list(self._status_events)
