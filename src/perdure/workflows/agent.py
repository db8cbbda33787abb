"""WorkflowAgent: a workflow with the interface of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.agents.base import RecordingAgent
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.json_struct import framework_class
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.recording import (
    current_delivery,
    emit_replays_to,
    emit_update,
    emit_updates_to,
    is_streaming,
    record_whole_turn,
)
from perdure.engine.run.run import WorkflowRunResult
from perdure.engine.thread.level import Secret
from perdure.errors import ThreadNotFound, ThreadNotIdle
from perdure.events import WorkflowEvent
from perdure.graph.executor import accepts
from perdure.records import CheckpointInfo
from perdure.workflows import agent_output
from perdure.workflows.agent_output import REQUEST_INFO, RequestInfoFunctionArgs, UpdateStream, build_response

if TYPE_CHECKING:
    from perdure.workflows.workflow import Workflow

INNER_PREFIX = "inside-"
"""The prefix of run ids of a turn inside another workflow."""


async def plan_inner_run(
    workflow: Workflow, session_id: str, state: Mapping[str, Any], options: Mapping[str, Any], *, is_answer: bool
) -> tuple[dict[str, Any], bool]:
    """Options of the workflow's `run` for a turn in the current step, which runs inside another workflow. And whether
    the turn started before an interruption: then its messages are in the thread.

    `state` is that of the session after the last turn; `is_answer`: whether the messages answer its requests."""
    context = current_delivery()
    assert context is not None  # noqa: S101  # called only inside a workflow
    key = f"{INNER_PREFIX}{context.idempotency_key}"
    thread_id = str(state.get("thread_id", session_id))
    # A workflow without a storage uses that of the outer workflow.
    outer_storage = context.delivery.lane.scope.storage
    storage = options.get("checkpoint_storage") or workflow.checkpoint_storage or outer_storage
    # The owner of the outer thread may take this one: an earlier owner is dead, or lost the outer thread too.
    run_options = {"takeover": True, **options, "thread_id": thread_id, "run_id": key}
    for name in options.keys() & {"function_invocation_kwargs", "client_kwargs"}:
        # Some arguments of the outer run are secrets there. It passes them each time, so this thread stores none.
        run_options[name] = {argument: Secret(value) for argument, value in options[name].items()}
    if storage is None:
        return run_options, False
    run_options["checkpoint_storage"] = storage
    head = await _find_head(workflow, storage, thread_id)
    if head is not None and head.run_id == key:
        return run_options, True
    if (None if head is None else head.checkpoint_id) == state.get("checkpoint_id"):
        return run_options, False
    if is_answer and head is not None and not str(head.run_id).startswith(INNER_PREFIX):
        return run_options, True  # an answer in this thread itself came first
    # It moved since, for a branch of the outer workflow that a rewind left and may still need: fork it.
    thread_id = run_options["thread_id"] = f"{session_id}/{context.idempotency_key[:12]}"
    head = await _find_head(workflow, storage, thread_id)
    if head is None and state.get("checkpoint_id") is not None:
        await workflow.fork(state["checkpoint_id"], thread_id=thread_id, checkpoint_storage=storage)
    return run_options, head is not None and head.run_id == key


async def _find_head(workflow: Workflow, storage: Any, thread_id: str) -> CheckpointInfo | None:
    try:
        return (await workflow.history(thread_id, limit=1, checkpoint_storage=storage))[0]
    except ThreadNotFound:
        return None


KEEPS_MESSAGES = "InMemoryHistoryProvider"
HISTORY = "in_memory"
"""The key of a session's state for the messages that Agent Framework's programs read there."""
ANSWERS = {"function_result": "function_call", "function_approval_response": "function_approval_request"}
"""The content type of an answer, and that of its request."""


class WorkflowAgent(RecordingAgent):
    """`workflow.as_agent()`: a message starts a turn of the workflow, its outputs are the response.

    A session is a thread of the workflow, so it continues in any process; without a session the workflow object's
    default thread continues. A request of the workflow is a function call named `request_info`, answered by the
    function's result, or an approval request, answered by its response. `run()` without messages resumes, and returns
    the response of an undisturbed run.
    """

    keeps_conversation: ClassVar[bool] = True
    REQUEST_INFO_FUNCTION_NAME: ClassVar[str] = REQUEST_INFO
    RequestInfoFunctionArgs = RequestInfoFunctionArgs
    merge_updates = staticmethod(agent_output.merge_updates)

    def __init__(
        self,
        workflow: Workflow,
        name: str | None = None,
        *,
        id: str | None = None,
        description: str | None = None,
        context_providers: Iterable[Any] | None = None,
    ) -> None:
        super().__init__(
            name or workflow.name,
            id=id,
            description=description or workflow.description,
            # A session is a thread, which keeps its messages.
            context_providers=[each for each in context_providers or () if type(each).__name__ != KEEPS_MESSAGES],
        )
        start = workflow.executors[workflow.start_executor_id]
        if not accepts(start, list[Message]):
            raise ValueError(
                f"Workflow's start executor cannot handle list[Message], the input of an agent: {start.id!r} of "
                f"{workflow.name!r} has no handler for it. Write one, or start with an agent."
            )
        self.workflow = workflow
        self.pending_requests: dict[str, WorkflowEvent] = {}
        """The requests that were pending at the end of the last turn, by id."""

    def run(
        self,
        messages: Any = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        checkpoint_id: Any = None,
        checkpoint_storage: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Send messages to the workflow, answer its requests, or resume it. Other arguments are those of its `run`.

        Raises ValueError for answers and other messages in one turn, and TypeError for tools, which belong to the
        agents in the workflow.
        """
        if kwargs.pop("tools", None):
            raise TypeError(f"The workflow {self.name!r} takes no tools as an agent: pass them to the agents in it.")
        kwargs.pop("response_format", None)  # the workflow decides its output
        sent = as_messages(messages)
        _find_answers(sent)  # raises for a mixed turn
        options = {"checkpoint_id": checkpoint_id, "checkpoint_storage": checkpoint_storage, **kwargs}
        options = {name: value for name, value in options.items() if value is not None}
        if not stream:
            return super().run(sent, session=session, **options)
        return super().run(sent, stream=True, session=session, **options)

    async def _run(
        self, messages: list[Message], session: AgentSession | None, kwargs: dict[str, Any]
    ) -> AgentResponse:
        if current_delivery() is not None:
            own = session if session is not None else self.create_session()
            return await record_whole_turn(
                self.name, messages, own, lambda sent, inner: self._run_inside(sent, inner, kwargs)
            )
        options = dict(kwargs)
        if session is not None:
            options["thread_id"] = session.session_id
        if messages and not _find_answers(messages) and "checkpoint_id" in options:
            await self.workflow.run(**options)
            del options["checkpoint_id"]
        before = 0 if session is None else session.version
        if session is not None and not messages:  # the last turn again
            before = int(session.state.get("before", before))
        sent = messages
        if session is not None and messages and not _find_answers(messages) and "usage" not in session.state:
            sent = [*_earlier_messages(session), *messages]  # the first turn of its thread
        result, response = await self._take_turn(sent, options, before, session)
        if session is not None:
            replies = list(response.messages)
            if messages or session.messages[len(session.messages) - len(replies) :] != replies:
                session.add([*messages, *replies])
                history = session.state.setdefault(HISTORY, {}).setdefault("messages", [])
                history += [*messages, *replies]
            session.state.update(usage=dict(result.usage), before=before)
        return response

    async def _run_inside(
        self, messages: list[Message], session: AgentSession | None, kwargs: Mapping[str, Any]
    ) -> AgentResponse:
        """A turn inside another workflow. An interrupted turn resumes its own thread."""
        state: dict[str, Any] = {} if session is None else session.state
        session_id, is_answer = str(session and session.session_id), bool(_find_answers(messages))
        before = 0 if session is None else session.version
        options, is_resumed = await plan_inner_run(self.workflow, session_id, state, kwargs, is_answer=is_answer)
        try:
            result, response = await self._take_turn([] if is_resumed else messages, options, before, session)
        except ThreadNotIdle:  # an earlier attempt failed in this process, without a stored commit
            result, response = await self._take_turn([], options, before, session)
        counted = state.get("usage", {})
        state.update(thread_id=result.thread_id, checkpoint_id=result.checkpoint_id, usage=dict(result.usage))
        used = {name: count - counted.get(name, 0) for name, count in result.usage.items()}
        return msgspec.structs.replace(response, usage_details=used or None)

    async def _take_turn(
        self, messages: list[Message], options: Mapping[str, Any], before: int, session: AgentSession | None
    ) -> tuple[WorkflowRunResult, AgentResponse]:
        """Run one turn, between the hooks of the context providers. `before`: how many messages the session has."""
        if not self.context_providers or not messages or _find_answers(messages):
            return await self._run_turn(messages, options, before)
        used = self.create_session() if session is None else session
        context = framework_class("SessionContext")(session_id=used.session_id, input_messages=messages, options={})

        def arguments(provider: Any) -> dict[str, Any]:
            state = used.state.setdefault(provider.source_id, {})
            return {"agent": self, "session": used, "context": context, "state": state}

        for provider in self.context_providers:
            if getattr(provider, "load_messages", True):
                await provider.before_run(**arguments(provider))
        sent = as_messages(context.get_messages(include_input=True))
        result, response = await self._run_turn(sent, options, before)
        context._response = response  # where the framework's agents put it for the providers
        for provider in reversed(self.context_providers):
            await provider.after_run(**arguments(provider))
        return result, response

    async def _run_turn(
        self, messages: list[Message], options: Mapping[str, Any], before: int
    ) -> tuple[WorkflowRunResult, AgentResponse]:
        answers = _find_answers(messages)
        message = None if answers else messages or None
        run_options: dict[str, Any] = {**options, "responses": answers} if answers else dict(options)
        run = self.workflow.new_run(message, **run_options)
        if not is_streaming():
            result = await run.execute()
            return result, self._end_turn(result, before)
        updates = UpdateStream(self, run.run_id, before)
        async with run.stream() as events:
            # Agents in the workflow publish updates only through its events.
            with emit_updates_to(None), emit_replays_to(updates.repeat):
                iterator = aiter(events)
            async for event in iterator:
                for update in updates.add(event):
                    emit_update(update)
            result = await events.get_final_response()
            response = self._end_turn(result, before, self.name)
        for update in updates.end(response, len(self.pending_requests)):
            emit_update(update)
        return result, response

    def _end_turn(self, result: WorkflowRunResult, before: int, request_author: str | None = None) -> AgentResponse:
        self.pending_requests = {str(event.request_id): event for event in result.get_request_info_events()}
        return build_response(result, self, before, request_author)


def _earlier_messages(session: AgentSession) -> list[Message]:
    """The messages of a session: its own, or those where Agent Framework's sessions keep them."""
    kept = session.state.get(HISTORY)
    return list(session.messages) or as_messages(kept.get("messages", ()) if isinstance(kept, Mapping) else ())


def _find_answers(messages: Iterable[Message]) -> dict[str, Any]:
    """Answers by request id. An answer beside its request is history. Raises ValueError for other messages beside
    answers."""
    contents = [content for message in messages for content in message.contents]
    requests = {(content.type, _call_id(content)) for content in contents if content.type in ANSWERS.values()}
    possible = (content for content in contents if content.type in ANSWERS)
    answers = [content for content in possible if (ANSWERS[content.type], _call_id(content)) not in requests]
    if not answers:
        return {}
    if len(answers) < len(contents):
        raise ValueError("Answers to requests and new messages cannot be in one turn: send the answers first.")
    # A failed function_result is passed as a whole, not as None: the executor gets the error, or rejects the answer.
    return {str(_call_id(answer)): _answer_of(answer) for answer in answers}


def _answer_of(content: Content) -> Any:
    return content.result if content.type == "function_result" and content.exception is None else content


def _call_id(content: Content) -> str | None:
    return content.id or content.call_id
