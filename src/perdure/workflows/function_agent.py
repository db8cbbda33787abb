"""FunctionalWorkflowAgent: a function workflow with the interface of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.agents.base import RecordingAgent
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, as_agent_message, as_response
from perdure.agents.recording import current_delivery, emit_update, emit_updates_to, is_streaming
from perdure.engine.run.request import accepts
from perdure.engine.run.run import WorkflowRunResult
from perdure.errors import InvalidRun
from perdure.events import WorkflowEvent
from perdure.workflows.agent import WorkflowAgent, _find_answers
from perdure.workflows.agent_output import REQUEST_INFO

if TYPE_CHECKING:
    from perdure.workflows.functions import FunctionalWorkflow


class FunctionalWorkflowAgent(RecordingAgent):
    """`function_workflow.as_agent()`: a message is the function's argument, its result is the response.

    A session is a thread of the workflow. Requests of the function are approval requests, which `responses=` answers by
    their ids. `context_providers` are only kept.
    """

    keeps_conversation = True
    REQUEST_INFO_FUNCTION_NAME = REQUEST_INFO

    def __init__(
        self,
        workflow: FunctionalWorkflow[Any, Any],
        *,
        name: str | None = None,
        id: str | None = None,
        description: str | None = None,
        context_providers: Any = None,
        **_: Any,
    ) -> None:
        name = name or workflow.name
        described = workflow.description if description is None else description
        super().__init__(name, id=id or f"FunctionalWorkflowAgent_{name}", description=described)
        self.workflow = workflow
        self.context_providers = context_providers
        self.pending_requests: dict[str, WorkflowEvent] = {}
        """The requests of the last run, by their ids."""

    def run(
        self, messages: Any = None, *, stream: bool = False, session: AgentSession | None = None, **kwargs: Any
    ) -> Any:
        """Call the function with `messages`, or answer its requests: `responses=`. Other arguments are those of its
        `run`. A function that takes neither the value nor `list[Message]` gets its text."""
        try:
            sent = as_messages(messages)
        except TypeError:  # a value of the function's own type
            sent = [Message("user", str(messages))]
        if messages is not None and not _find_answers(sent):
            if kwargs.get("checkpoint_id") is not None:
                raise InvalidRun(
                    "The agent takes messages or a checkpoint_id, not both: restore first, then send them."
                )
            kwargs["argument"] = self._argument(messages, sent)
        options = {key: value for key, value in kwargs.items() if value is not None and key != "response_format"}
        if not stream:
            return super().run(sent, session=session, **options)
        return super().run(sent, stream=True, session=session, **options)

    # A turn is that of a workflow of messages.
    _run: Any = WorkflowAgent._run
    _run_inside: Any = WorkflowAgent._run_inside

    def _argument(self, value: Any, messages: list[Message]) -> Any:
        texts = "\n".join(message.text for message in messages)
        return next((each for each in (value, messages, texts) if accepts(self.workflow.graph, each)), value)

    async def _take_turn(
        self, sent: list[Message], options: Mapping[str, Any], before: int, session: AgentSession | None
    ) -> tuple[WorkflowRunResult, AgentResponse]:
        run_options, answers = dict(options), _find_answers(sent)
        argument = run_options.pop("argument", None)
        if answers:
            run_options["responses"] = answers
        with emit_updates_to(None):  # the response has what agents in the function say
            run = self.workflow.new_run(argument if sent and not answers else None, **run_options)
            result = await run.execute(is_streaming=is_streaming())
        self.pending_requests = {str(event.request_id): event for event in result.get_request_info_events()}
        responses = [self._as_response(output) for output in result.get_outputs()]
        messages = [message for response in responses for message in response.messages]
        requests = tuple(map(_as_request, self.pending_requests.values()))
        if requests:
            messages.append(Message("assistant", requests, self.name))
        response = AgentResponse(
            messages=tuple(messages),
            response_id=result.run_id,
            agent_id=self.id,
            value=next((response.value for response in responses), None),
        )
        for update in response.to_updates():
            emit_update(update)
        return result, response

    def _as_response(self, output: Any) -> AgentResponse:
        is_value = isinstance(output, list) and all(isinstance(item, str) for item in output)
        try:
            return as_response(None if is_value else output, self.name)
        except TypeError:
            return AgentResponse(messages=(as_agent_message(str(output), self.name),), value=output)


def _as_request(event: WorkflowEvent) -> Content:
    request_id, data = str(event.request_id), event.data
    if isinstance(data, Content) and data.user_input_request:  # that of an agent
        id_field = "call_id" if data.type == "function_call" else "id"
        return msgspec.structs.replace(data, **{id_field: request_id})
    try:
        plain = msgspec.to_builtins(data)
    except (TypeError, ValueError):
        plain = str(data)
    arguments = {"request_id": request_id, "data": plain}
    call = Content.from_function_call(request_id, REQUEST_INFO, arguments=arguments)
    if current_delivery() is not None:  # in another workflow, which answers a call with a result of any type
        return msgspec.structs.replace(call, user_input_request=True)
    request = Content.from_function_approval_request(request_id, call)
    return msgspec.structs.replace(request, additional_properties={"request_id": request_id})
