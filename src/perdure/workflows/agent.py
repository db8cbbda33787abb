"""WorkflowAgent: a workflow that is spoken to like an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import msgspec

from perdure.agents.base import RecordingAgent
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.recording import heard_by, is_heard, record_whole_turn, repeated_to, tell, working_for
from perdure.engine.run.result import WorkflowRunResult
from perdure.engine.thread.arguments import Secret
from perdure.errors import ThreadNotFound, ThreadNotIdle
from perdure.graph.types.matching import is_type_compatible
from perdure.records import CheckpointInfo
from perdure.workflows.agent_updates import (
    REQUEST_INFO,
    RequestInfoFunctionArgs,
    Speaking,
    response_to,
    told_at_the_end,
)

if TYPE_CHECKING:
    from perdure.workflows.functions import FunctionalWorkflow
    from perdure.workflows.workflow import Workflow

# ---------------------------------------------------------------- inner thread


INSIDE = "inside-"
"""How the ids of such runs begin."""


class InnerRun(NamedTuple):
    options: dict[str, Any]
    """Of the workflow's `run`."""
    is_resumed: bool
    """Whether what is said now was said already, before an interruption."""


async def inner_run(
    workflow: Workflow, session_id: str, kept: Mapping[str, Any], options: Mapping[str, Any], *, is_answer: bool
) -> InnerRun:
    """How to run the turn of the step that is made now. `kept` is what the turn before left, `is_answer` whether its
    requests are answered now."""
    context = working_for()
    assert context is not None  # noqa: S101  # asked only in a workflow
    key = f"{INSIDE}{context.idempotency_key}"
    thread_id = str(kept.get("thread_id", session_id))
    # A workflow without a storage lives where the workflow around it does.
    around = context.delivery.lane.scope.storage
    storage = options.get("checkpoint_storage") or workflow.checkpoint_storage or around
    # Whoever moves the thread around it may move this one: an owner before is gone, or lost that one too.
    given = {"takeover": True, **_not_kept(options), "thread_id": thread_id, "run_id": key}
    if storage is None:
        return InnerRun(given, is_resumed=False)
    given["checkpoint_storage"] = storage
    head = await _head(workflow, storage, thread_id)
    stands_at = None if head is None else head.checkpoint_id
    if head is not None and head.run_id == key:
        return InnerRun(given, is_resumed=True)
    if stands_at == kept.get("checkpoint_id"):
        return InnerRun(given, is_resumed=False)
    if is_answer and head is not None and not str(head.run_id).startswith(INSIDE):
        return InnerRun(given, is_resumed=True)  # somebody answered in this thread itself, and was the first to do so
    # It has gone on since: in a life of the workflow around it that was left behind, and may still be wanted there.
    thread_id = given["thread_id"] = f"{session_id}/{context.idempotency_key[:12]}"
    head = await _head(workflow, storage, thread_id)
    if head is None and kept.get("checkpoint_id") is not None:
        await workflow.fork(kept["checkpoint_id"], thread_id=thread_id, checkpoint_storage=storage)
    return InnerRun(given, is_resumed=head is not None and head.run_id == key)


def _not_kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """Run arguments come from the workflow around it, each time: some are secrets there, so none is stored here."""
    arguments = ("function_invocation_kwargs", "client_kwargs")
    hidden = {name: {key: Secret(one) for key, one in options[name].items()} for name in arguments if name in options}
    return {**options, **hidden}


async def _head(workflow: Workflow, storage: Any, thread_id: str) -> CheckpointInfo | None:
    try:
        found = await workflow.history(thread_id, limit=1, checkpoint_storage=storage)
    except ThreadNotFound:
        return None
    return found[0] if found else None


__all__ = ["REQUEST_INFO", "RequestInfoFunctionArgs", "WorkflowAgent"]

ANSWERS = {"function_result": "function_call", "function_approval_response": "function_approval_request"}
"""What answers a request, and what the request is."""


class WorkflowAgent(RecordingAgent):
    """`workflow.as_agent()`: a message starts a turn of the workflow, its outputs are the response.

    A session is a thread of the workflow, so it goes on where it stood, in any process; without one the workflow
    object's own thread goes on. What the workflow asks is a function call named `request_info`, or the request for
    approval as it is; it is answered with the function's result, or with the approval's response. `run()` without
    messages resumes, and gives what the undisturbed run would have given.
    """

    keeps_conversation: ClassVar[bool] = True

    def __init__(
        self,
        workflow: Workflow | FunctionalWorkflow[Any, Any],
        name: str | None = None,
        *,
        description: str | None = None,
        context_providers: Any = None,
    ) -> None:
        if context_providers:
            raise ValueError(
                f"The workflow {workflow.name!r} takes no context_providers as an agent: a session is a thread of it, "
                "which keeps all that was said. Give them to the agents in it."
            )
        build: Callable[[], Workflow] | None = getattr(workflow, "build", None)
        workflow = cast("Workflow", workflow) if build is None else build()
        super().__init__(name or workflow.name, description=description or workflow.description)
        start = workflow.executors[workflow.start_executor_id]
        if not any(is_type_compatible(list[Message], one) for one in start.input_types):
            raise ValueError(
                f"The start executor {start.id!r} of {workflow.name!r} does not accept list[Message], which an agent "
                "is given. Write a handler for it, or begin with an agent."
            )
        self.workflow = workflow

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
        """Speak to the workflow, answer it, or resume it. Other arguments are those of its `run`.

        Raises ValueError if answers and something else are said in one turn, and TypeError for tools, which are for the
        agents in the workflow.
        """
        if kwargs.pop("tools", None):
            raise TypeError(f"The workflow {self.name!r} takes no tools as an agent: give them to the agents in it.")
        kwargs.pop("response_format", None)  # what it gives is up to the workflow
        given = as_messages(messages)
        _answers(given)
        options = {"checkpoint_id": checkpoint_id, "checkpoint_storage": checkpoint_storage, **kwargs}
        options = {name: value for name, value in options.items() if value is not None}
        if not stream:
            return super().run(given, session=session, **options)
        return super().run(given, stream=True, session=session, **options)

    @staticmethod
    def merge_updates(updates: Iterable[AgentResponseUpdate], response_id: str) -> AgentResponse:
        """The response that was streamed, under this id."""
        return msgspec.structs.replace(AgentResponse.from_updates(updates), response_id=response_id)

    async def _run(
        self, messages: list[Message], session: AgentSession | None, kwargs: dict[str, Any]
    ) -> AgentResponse:
        if working_for() is not None:
            own = session if session is not None else self.create_session()
            return await record_whole_turn(
                self.name, messages, own, lambda given, kept: self._inside(given, kept, kwargs)
            )
        options = dict(kwargs)
        if session is not None:
            options["thread_id"] = session.session_id
        if messages and not _answers(messages) and "checkpoint_id" in options:
            await self.workflow.run(**options)
            del options["checkpoint_id"]
        before = 0 if session is None else session.version
        if session is not None and not messages:  # the turn before, again
            before = int(session.state.get("before", before))
        result, response = await self._taken(messages, options, before)
        if session is not None:
            said = list(response.messages)
            if messages or session.messages[len(session.messages) - len(said) :] != said:
                session.add([*messages, *said])
            session.state.update(usage=dict(result.usage), before=before)
        return response

    async def _inside(
        self, messages: list[Message], session: AgentSession | None, kwargs: Mapping[str, Any]
    ) -> AgentResponse:
        """A turn in a workflow around it. One that was cut short goes on where its own thread stands."""
        kept: dict[str, Any] = {} if session is None else session.state
        session_id, is_answer = str(session and session.session_id), bool(_answers(messages))
        before = 0 if session is None else session.version
        where = await inner_run(self.workflow, session_id, kept, kwargs, is_answer=is_answer)
        try:
            result, response = await self._taken([] if where.is_resumed else messages, where.options, before)
        except ThreadNotIdle:  # an attempt before this one failed, in this process, and nothing is stored
            result, response = await self._taken([], where.options, before)
        counted = kept.get("usage", {})
        kept.update(thread_id=result.thread_id, checkpoint_id=result.checkpoint_id, usage=dict(result.usage))
        used = {name: count - counted.get(name, 0) for name, count in result.usage.items()}
        return msgspec.structs.replace(response, usage_details=used or None)

    async def _taken(
        self, messages: list[Message], options: Mapping[str, Any], before: int
    ) -> tuple[WorkflowRunResult, AgentResponse]:
        """`before`: how many messages the session has."""
        answers = _answers(messages)
        message = messages if messages and not answers else None
        given: dict[str, Any] = {**options, "responses": answers} if answers else dict(options)
        if not is_heard():
            result = await self.workflow.run(message, **given)
            return result, response_to(result, self, before)
        speaking = Speaking(self, before)
        async with self.workflow.run(message, stream=True, **given) as events:
            # Agents in the workflow are heard through its events, or not at all.
            with heard_by(None), repeated_to(speaking.repeat):
                told = aiter(events)
            async for event in told:
                for update in speaking.said(event):
                    tell(update)
            result = await events
        response = response_to(result, self, before)
        for update in told_at_the_end(response, result, self):
            tell(update)
        return result, response


def _answers(messages: Iterable[Message]) -> dict[str, Any]:
    """By request id. Those whose request stands beside them are history. Raises ValueError where something else is
    said."""
    contents = [one for message in messages for one in message.contents]
    asked = {(one.type, one.id or one.call_id) for one in contents if one.type in ANSWERS.values()}
    found = [one for one in contents if one.type in ANSWERS and (ANSWERS[one.type], one.id or one.call_id) not in asked]
    if not found:
        return {}
    if len(found) < len(contents):
        raise ValueError("Answers to requests and new messages cannot be given in one turn: give the answers first.")
    # A result that failed is no None: whoever asked is told of it, or refuses it.
    return {
        str(one.id or one.call_id): one.result if one.type == "function_result" and one.exception is None else one
        for one in found
    }
