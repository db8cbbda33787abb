"""What the consumer of a streamed run gets from agents."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate, update_of
from perdure.events import WorkflowEvent, WorkflowEventSource
from perdure.graph.graph import Graph

_WITH_WORDS = frozenset({"data", "output", "intermediate"})
"""The types of events that may hold what an agent says."""


class AgentOutputs:
    """The output of an agent arrives as updates, while the agent works. Its response is not emitted again.

    A response without updates, such as one that an earlier run recorded, becomes an update for each message. Updates
    inside a sub-workflow, and those of an answer that is not an output yet, stay `data` events.
    """

    def __init__(self, graph: Graph) -> None:
        self._executors = graph.executors
        self._kinds = graph.output_kinds
        self._streamed: set[str] = set()
        """Executors whose next response has been streamed."""

    def __call__(self, event: WorkflowEvent) -> Sequence[WorkflowEvent]:
        if event.type not in _WITH_WORDS:
            if event.type == "executor_invoked" and self._streamed:
                # What the executor streamed before had no response, since it failed.
                self._streamed.discard(str(event.executor_id))
            return (event,)
        data = event.data
        if isinstance(data, AgentResponseUpdate):
            is_live = event.type == "data" and event.origin is WorkflowEventSource.FRAMEWORK
            return self._show_update(event, data) if is_live and event.child_id is None else (event,)
        if isinstance(data, AgentResponse) and event.type in ("output", "intermediate"):
            return self._show_response(event, data)
        return (event,)

    def _show_update(self, event: WorkflowEvent, update: AgentResponseUpdate) -> Sequence[WorkflowEvent]:
        executor_id = str(event.executor_id)
        kind = self._kinds.get(executor_id)
        if kind is None or update.user_input_requests:  # a hidden executor; a request_info event follows
            return ()
        self._streamed.add(executor_id)
        return (msgspec.structs.replace(event, type=kind),)

    def _show_response(self, event: WorkflowEvent, response: AgentResponse) -> Sequence[WorkflowEvent]:
        executor_id = str(event.executor_id)
        if executor_id in self._streamed and not event.replayed:
            self._streamed.remove(executor_id)
            return ()
        executor = self._executors.get(executor_id)
        if executor is None or not executor.streams_output:
            return (event,)
        ids = {"response_id": response.response_id, "is_whole": True}
        parts = (update_of(message, contents=message.contents, **ids) for message in response.messages)
        return [msgspec.structs.replace(event, data=part) for part in parts]
