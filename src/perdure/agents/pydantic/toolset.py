"""The tools of an agent: each call is a recorded step under its call id, and may need approval. Calls without a result:
found in a conversation, requested, and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturn, ToolReturnContent
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import PydanticSerializationError, to_json

from perdure.agents.base import is_from
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.pydantic.messages import as_builtin
from perdure.agents.pydantic.model import RecordingModel
from perdure.agents.recording import ask, ask_for_approval, current_delivery, edited_arguments, request_id_for
from perdure.agents.tools import ApprovalNeeded, Rejected, Tool, ToolContext, perform_call, request_approval
from perdure.errors import InvalidRun
from perdure.twins import to_own

CONTENT: TypeAdapter[Any] = TypeAdapter(ToolReturnContent)
RETURN: TypeAdapter[Any] = TypeAdapter(ToolReturn)
BINARY: TypeAdapter[Any] = TypeAdapter(ToolReturnContent, config=ConfigDict(ser_json_bytes="base64"))
"""For values with bytes that are not UTF-8. Their base64 is URL-safe."""
RAISED = {"retry": ModelRetry, "failed": ToolFailed, "approval": ApprovalRequired, "deferred": CallDeferred}
"""Exceptions by which a tool reports about its call, by their recorded name."""

APPROVE = "Message('user', [request.approve()]) or request.reject()"
GIVE_RESULT = "Message('tool', [Content.from_function_result(request.call_id, result=...)])"


class ToolCalls:
    def __init__(self, model: RecordingModel) -> None:
        self._model = model
        self._used: dict[str, list[int]] = {}
        """By call id: the model requests whose answers had this id."""
        self.performed: set[str] = set()
        """By call id: calls that were performed, not replayed."""
        self.ended_by: set[str] = set()
        """By call id: calls of tools that end the turn."""
        self.finished: dict[str, bool] = {}
        """By the name of each started call: whether it has a result for the model."""

    def name_of(self, call_id: str) -> str:
        """Distinguishes a call from other calls of the turn: some models repeat ids."""
        used = self._used.setdefault(call_id, [])
        if self._model.requests not in used:
            used.append(self._model.requests)
        number = used.index(self._model.requests) + 1
        return call_id if number == 1 else f"{call_id} #{number}"


@dataclass
class RecordingToolset(WrapperToolset[Any]):  # type: ignore[misc]  # pydantic-ai is not type-checked
    """A wrapped toolset for one turn of an agent: a recorded call is not repeated."""

    agent_name: str
    tools: Mapping[str, Tool]
    """Our tools, by name."""
    calls: ToolCalls

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call_name = self.calls.name_of(str(ctx.tool_call_id))
        finished = self.calls.finished
        finished[call_name] = False
        try:
            result = await self._call(name, tool_args, ctx, tool)
        except ToolFailed:
            finished[call_name] = True
            raise
        except Exception:
            del finished[call_name]  # the model does not get it, or the model repeats it
            raise
        finished[call_name] = True
        return result

    async def _call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        call = _call_of_model(name, ctx, self.calls.name_of(str(ctx.tool_call_id)))
        own = self.tools.get(name)

        async def perform(arguments: Mapping[str, Any], context: ToolContext) -> Any:
            if own is not None:
                return await own.call(arguments, context)
            return await self.wrapped.call_tool(name, dict(arguments), ctx, tool)

        def begin() -> None:
            self.calls.performed.add(str(ctx.tool_call_id))

        recordable = _RecordableTool(own, name, perform)
        try:
            arguments = await self._approve(recordable, call, tool_args, ctx, tool)
            record = await perform_call(recordable, call, arguments, self.agent_name, begin)
        except ApprovalNeeded as error:
            raise ApprovalRequired from error
        except ToolFailed:
            raise
        except Rejected as error:
            raise ToolFailed(str(error)) from error
        except Exception as error:  # the model handles any exception of a tool
            raise ToolFailed(f"{type(error).__name__}: {error}") from error
        if recordable.ends_turn:
            self.calls.ended_by.add(str(ctx.tool_call_id))
        return _result(record)

    async def _approve(
        self, recordable: Tool, call: Content, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> dict[str, Any]:
        if ctx.tool_call_approved:
            return tool_args
        requested = call.parse_arguments()
        approved = await request_approval(recordable, call, requested)
        if approved == requested:
            return tool_args
        try:
            validated: dict[str, Any] = tool.args_validator.validate_python(dict(approved))
        except ValidationError as error:
            raise ToolFailed(f"The call was approved with invalid arguments: {error}") from error
        return validated


class _NotRecorded(Exception):
    """A call without a record."""


async def finished_calls(response: ModelResponse, calls: ToolCalls, agent_name: str) -> set[str]:
    """Ids of the calls in the model's last answer that have ended, with or without success. A call that was cancelled
    because another failed may have a record."""
    finished: set[str] = set()
    for part in response.tool_calls:
        name = calls.name_of(part.tool_call_id)
        is_finished = calls.finished.get(name)
        if is_finished or (is_finished is False and await _is_recorded(part.tool_name, name, agent_name)):
            finished.add(part.tool_call_id)
    return finished


async def _is_recorded(tool_name: str, call_name: str, agent_name: str) -> bool:
    async def refuse(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        raise _NotRecorded(f"The call {call_name!r} of {tool_name!r} was cut short.")

    call = Content.from_function_call(call_name, tool_name)
    try:
        _result(await perform_call(_RecordableTool(None, tool_name, refuse), call, {}, agent_name))
    except (_NotRecorded, ModelRetry, ApprovalRequired, CallDeferred):
        return False
    except Exception:  # noqa: BLE001  # the model gets any exception of the tool
        return True
    return True


class _RecordableTool(Tool):
    """A tool whose outcome is recorded as JSON: its result, or its exception."""

    def __init__(self, own: Tool | None, name: str, do: Callable[[Mapping[str, Any], ToolContext], Any]) -> None:
        names = () if own is None else ("approval", "retry", "timeout", "ends_turn")
        super().__init__(do, name=name, description="", **{option: getattr(own, option) for option in names})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        try:
            result = await self.function(arguments, context)
        except tuple(RAISED.values()) as error:
            kind = next(kind for kind, raised in RAISED.items() if isinstance(error, raised))
            return to_json({kind: error.metadata if hasattr(error, "metadata") else error.message}).decode()
        except Exception as error:
            if self.retry is not None:  # the retry policy comes first
                raise
            return to_json({"failed": f"{type(error).__name__}: {error}"}).decode()
        return _recordable(result)


def as_result(value: Any) -> Any:
    """An external result for the model, as if a tool had returned it."""
    return _result(_recordable(value))


def _recordable(result: Any) -> str:
    kind, adapter = ("returned", RETURN) if isinstance(result, ToolReturn) else ("content", CONTENT)
    value = msgspec.to_builtins(result) if isinstance(result, msgspec.Struct) else result
    try:
        encoded = adapter.dump_json(value, fallback=as_builtin)
    except PydanticSerializationError:  # bytes that are not UTF-8
        encoded = BINARY.dump_json(value, fallback=as_builtin)
    return f'{{"{kind}":{encoded.decode()}}}'


def _result(record: str) -> Any:
    """Raises the tool's exception."""
    outcome = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
    if "content" in outcome:
        return CONTENT.validate_json(bytes(outcome["content"]))
    if "returned" in outcome:
        return RETURN.validate_json(bytes(outcome["returned"]))
    kind, message = next(iter(outcome.items()))
    raise RAISED[kind](msgspec.json.decode(message))


def _call_of_model(name: str, ctx: RunContext[Any], call_id: str) -> Content:
    """The model's call. After an approval it is another step than the attempt that asked for it."""
    response = next((message for message in reversed(ctx.messages) if isinstance(message, ModelResponse)), None)
    calls = () if response is None else response.tool_calls
    arguments = next((call.args for call in calls if call.tool_call_id == ctx.tool_call_id), None)
    call_id = f"{call_id} approved" if ctx.tool_call_approved else call_id
    return Content.from_function_call(call_id, name, arguments=arguments)


class PendingCalls(msgspec.Struct, frozen=True):
    """The calls of an agent that have no result yet, with their requests and answers."""

    agent_name: str
    calls: tuple[Content, ...] = ()
    requests: dict[str, Content] = {}  # msgspec copies it
    """By call id: the requests."""
    answers: dict[str, Content] = {}
    """By call id."""

    @classmethod
    def find_in(cls, conversation: Sequence[Message], agent_name: str) -> PendingCalls:
        """Raises InvalidRun if another message comes before the answers."""
        sent = without_requests(conversation)
        calls_by_message = [each.of_type("function_call") if is_from(each, agent_name) else [] for each in sent]
        last = next((index for index in range(len(conversation) - 1, -1, -1) if calls_by_message[index]), None)
        if last is None:
            return cls(agent_name)
        after = [content for message in conversation[last + 1 :] for content in message.contents]
        finished = {content.call_id for content in after if content.type == "function_result"}
        calls = tuple(call for call in calls_by_message[last] if call.call_id not in finished)
        pending = cls(agent_name, calls, *_requests_and_answers(after))
        if pending.unanswered_calls and any(content.type in ("text", "data", "uri") for content in after):
            raise pending.refusal()
        return pending

    @property
    def unanswered_calls(self) -> list[Content]:
        return [call for call in self.calls if call.call_id not in self.answers]

    @property
    def is_waiting(self) -> bool:
        """Whether a request has no answer yet."""
        return any(call.call_id in self.requests for call in self.unanswered_calls)

    def refusal(self) -> InvalidRun:
        calls = self.unanswered_calls
        names = ", ".join(repr(call.name) for call in calls)
        requests = [self.requests.get(str(call.call_id)) for call in calls]
        needs_result = [request is not None and request.type == "function_call" for request in requests]
        advice = [APPROVE] * (not all(needs_result)) + [GIVE_RESULT] * any(needs_result)
        return InvalidRun(
            f"Agent {self.agent_name!r} waits for an answer about its calls of {names}, and got another message. "
            f"Nothing was done. Answer with {', and with '.join(advice)} first."
        )

    def repeat_requests(self) -> Message:
        """The requests without an answer."""
        open_calls = {call.call_id for call in self.unanswered_calls}
        requests = [request for call, request in self.requests.items() if call in open_calls]
        return Message("assistant", requests, self.agent_name)

    def results(self) -> DeferredToolResults | None:
        """For pydantic-ai, once all calls are answered. Results of tools are part of the conversation."""
        if not self.calls or self.unanswered_calls:
            return None
        approvals = {str(call.call_id): _verdict(call, self.answers[str(call.call_id)]) for call in self.calls}
        return DeferredToolResults(approvals=approvals)


def without_requests(conversation: Iterable[Message]) -> list[Message]:
    """The messages for the model: a request for the result of a call repeats that call, and is removed."""
    messages: list[Message] = []
    seen: set[str | None] = set()
    for message in conversation:
        calls = message.of_type("function_call")
        requests = [call for call in calls if call.user_input_request and call.call_id in seen]
        seen.update(call.call_id for call in calls)
        remaining = tuple(content for content in message.contents if content not in requests)
        messages.append(msgspec.structs.replace(message, contents=remaining) if requests else message)
    return messages


def _requests_and_answers(contents: Iterable[Content]) -> tuple[dict[str, Content], dict[str, Content]]:
    """By call id. An approved call may have a second request: for its result."""
    requests: dict[str, Content] = {}
    answers: dict[str, Content] = {}
    for content in contents:
        call = content if content.type == "function_call" else content.function_call
        if call is None:
            continue
        call_id = str(call.call_id)
        if content.type == "function_approval_response":
            answers[call_id] = content
        elif content.user_input_request:
            requests[call_id] = content
            answers.pop(call_id, None)
    return requests, answers


async def ask_for_results(deferred: DeferredToolRequests, name_of: Callable[[str], str]) -> DeferredToolResults | None:
    """Ask for the approvals and results of the calls. None outside of a workflow, which cannot ask. `name_of`
    distinguishes a call from other calls of the turn."""
    if current_delivery() is None or not (deferred.calls or deferred.approvals):
        return None

    async def answers(ask_for: Callable[[ToolCallPart, str], Awaitable[Any]], parts: list[ToolCallPart]) -> Any:
        ids = [part.tool_call_id for part in parts]
        asking = (ask_for(part, request_id_for(name_of(part.tool_call_id))) for part in parts)
        return dict(zip(ids, await asyncio.gather(*asking), strict=True))

    approvals, calls = await asyncio.gather(
        answers(_ask_for_approval, deferred.approvals), answers(_ask_for_result, deferred.calls)
    )
    return DeferredToolResults(approvals=approvals, calls=calls)


async def _ask_for_approval(part: ToolCallPart, request_id: str) -> ToolApproved | ToolDenied:
    call = _as_call(part)
    answer = await ask_for_approval(Content.from_function_approval_request(request_id, call), key=request_id)
    assert answer is not None  # noqa: S101  # called only inside of a workflow
    return _verdict(call, answer)


async def _ask_for_result(part: ToolCallPart, request_id: str) -> Any:
    """The answer is the result, or a `function_result`."""
    answer = to_own(await ask(_result_request(part), Any, request_id))
    if not isinstance(answer, Content) or answer.type != "function_result":
        return as_result(answer)
    return as_result(answer.result) if answer.exception is None else ToolFailed(answer.exception)


def request_message(deferred: DeferredToolRequests, agent_name: str) -> Message:
    """The requests, for the caller of the agent."""
    approve = Content.from_function_approval_request
    requests = [approve(part.tool_call_id, _as_call(part)) for part in deferred.approvals]
    return Message("assistant", [*requests, *map(_result_request, deferred.calls)], agent_name)


def _result_request(part: ToolCallPart) -> Content:
    return msgspec.structs.replace(_as_call(part), user_input_request=True)


def _as_call(part: ToolCallPart) -> Content:
    return Content.from_function_call(part.tool_call_id, part.tool_name, arguments=part.args)


def _verdict(call: Content, answer: Content) -> ToolApproved | ToolDenied:
    if not answer.approved:
        return ToolDenied(str(Rejected(answer.reason)))
    return ToolApproved(override_args=edited_arguments(answer, call))
