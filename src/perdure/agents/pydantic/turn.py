"""One turn of an agent of pydantic-ai: its model requests and tool calls are recorded, and its updates are emitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import pydantic_ai
from pydantic_ai.agent import ModelRequestNode
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_graph import End

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.agents.pydantic.messages import EXTRA, from_messages, request_to_messages
from perdure.agents.pydantic.model import RecordingModel, TurnMessages, usage_of
from perdure.agents.pydantic.toolset import (
    PendingCalls,
    RecordingToolset,
    ToolCalls,
    ask_for_results,
    finished_calls,
    request_message,
    without_requests,
)
from perdure.agents.recording import BadAnswerRetry, emit_update, end_sentence, is_streaming, turn_failure
from perdure.agents.tools import Tool
from perdure.errors import PerdureError, UsageLimitReached


@contextmanager
def agent_errors(agent_name: str) -> Iterator[None]:
    """Errors of models and of pydantic-ai become AgentFailed, with the agent and the recorded part of the turn."""
    try:
        yield
    except UsageLimitExceeded as error:
        raise UsageLimitReached(
            agent_name,
            f"a limit of its usage was reached: {end_sentence(str(error).strip())}",
            "Finished calls of the turn are recorded. Raise its usage_limits and resume, or send another message.",
        ) from error
    except PerdureError:
        raise
    except Exception as error:
        advice = "Finished calls of the turn are recorded, and a resume continues after them."
        raise turn_failure(agent_name, error, advice) from error


BAD_ANSWER_ADVICE = (
    "Finished calls of the turn are recorded. Correct the model, its tools or its instructions, and resume: the model "
    "is asked again, without the answers that led here."
)
"""For a turn whose model gave no usable answer in all its attempts."""


def _is_only_retry(request: ModelRequest) -> bool:
    """Whether pydantic-ai only asks the model for another answer."""
    return all(
        part.part_kind in ("retry-prompt", "retry-feedback")
        or (isinstance(part, ToolReturnPart) and part.outcome == "retried")
        for part in request.parts
    )


CONTINUE_PROMPT = "Please go on."
"""The prompt for a model whose own message is the last: a request must end with another message."""


@dataclass(eq=False)
class _BadAnswer(Exception):
    """The model's answer cannot be used, and no attempt is left."""

    error: Exception
    before: list[ModelMessage]
    new: list[ModelMessage]


@dataclass(kw_only=True)
class PydanticTurn:
    """One turn. A repeated turn after a crash replays its records."""

    name: str
    """The name of the agent, part of the keys of its steps."""
    id: str
    agent: pydantic_ai.Agent[Any, Any]
    model: Model | str
    toolsets: Sequence[AbstractToolset[Any]]
    tools: Mapping[str, Tool]
    """Our tools that the toolsets contain."""
    output_type: Any
    has_value: bool
    """Whether the output is more than a text."""
    usage_limits: UsageLimits | None
    options: Mapping[str, Any]
    """Other options of the agent's run."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """`retry` and `timeout` of model requests."""

    def __post_init__(self) -> None:
        self._messages = TurnMessages(self.name, self.id)
        with agent_errors(self.name):
            model = infer_model(self.model)
        self._model = RecordingModel(model, self._messages, self.policy)
        self._calls = ToolCalls(self._model)
        self._usage = RunUsage()
        self._bad_answers = BadAnswerRetry(self.name)

    async def take(self, conversation: Sequence[Message]) -> AgentResponse:
        """The response to the whole conversation."""
        pending = PendingCalls.find_in(conversation, self.name)
        if pending.is_waiting:
            self._messages.add(pending.repeat_requests(), replayed=False)
            return self._response(None)
        history = from_messages(without_requests(conversation), self.name)
        results = pending.results()
        if results is None and not (history and isinstance(history[-1], ModelRequest)) and not pending.calls:
            history.append(ModelRequest(parts=[UserPromptPart(CONTINUE_PROMPT)]))
        with agent_errors(self.name):
            while True:
                try:
                    output, history = await self._run(history, results)
                except _BadAnswer as bad_answer:
                    history = await self._drop_bad_answers(bad_answer)
                    results = results if len(history) == len(bad_answer.before) else None
                    continue
                if not isinstance(output, DeferredToolRequests):
                    return self._response(output)
                results = await ask_for_results(output, self._calls.name_of)
                if results is None:
                    if output.approvals or output.calls:
                        self._messages.add(request_message(output, self.name), replayed=False)
                    return self._response(None)

    async def _run(
        self, history: list[ModelMessage], results: DeferredToolResults | None
    ) -> tuple[Any, list[ModelMessage]]:
        """The output, and all messages. The output is None if a tool ends the turn."""
        record = partial(RecordingToolset, agent_name=self.name, tools=self.tools, calls=self._calls)
        # In other cases the first request contains messages of the conversation, which are not new.
        has_new_results = results is not None or isinstance(history[-1], ModelResponse)
        with self.agent.override(model=self._model, toolsets=[*map(record, self.toolsets)], tools=[]):
            async with self.agent.iter(
                message_history=history,
                deferred_tool_results=results,
                output_type=self.output_type,
                usage_limits=self.usage_limits,
                usage=self._usage,
                infer_name=False,
                **self.options,
            ) as run:
                node: Any = run.next_node
                while not isinstance(node, End):
                    if isinstance(node, ModelRequestNode):
                        if has_new_results:
                            self._add_results([node.request])
                        has_new_results = True
                        if self._calls.ended_by:
                            return None, run.all_messages()
                    node = await self._next(run, node)
                new = run.new_messages()
                self._add_results(new[-1:] if new and isinstance(new[-1], ModelRequest) else ())
                assert run.result is not None  # noqa: S101  # the run has ended
                return run.result.output, run.all_messages()

    async def _next(self, run: Any, node: Any) -> Any:
        try:
            return await run.next(node)
        except UnexpectedModelBehavior as error:
            if self._model.is_failed:
                raise
            new = run.new_messages()
            before = run.all_messages()[: -len(new) or None]
            if new and isinstance(new[-1], ModelRequest) and new[-1].state == "interrupted":
                del new[-1]  # results of some of the calls in the last answer
            raise _BadAnswer(error, before, new) from error

    async def _drop_bad_answers(self, bad_answer: _BadAnswer) -> list[ModelMessage]:
        """The messages without the last answers that have no results. Finished calls of an answer stay: they are not
        repeated. Raises AgentFailed if the delivery has not failed with it yet."""
        await self._bad_answers.report(turn_failure(self.name, bad_answer.error, BAD_ANSWER_ADVICE))
        remaining = list(bad_answer.new)
        last = remaining[-1] if remaining else None
        finished = await finished_calls(last, self._calls, self.name) if isinstance(last, ModelResponse) else set()
        dropped = 0
        while remaining:
            last = remaining[-1]
            if isinstance(last, ModelResponse):
                calls = [call for call in last.tool_calls if call.tool_call_id in finished]
                if calls:
                    parts = [part for part in last.parts if not isinstance(part, ToolCallPart) or part in calls]
                    remaining[-1] = shortened = replace(last, parts=parts)
                    self._model.drop_answers(dropped, shortened)
                    return [*bad_answer.before, *remaining]
                dropped += 1
            elif not _is_only_retry(last):
                break
            remaining.pop()
        self._model.drop_answers(dropped, None)
        return [*bad_answer.before, *remaining]

    def _add_results(self, requests: Iterable[Any]) -> None:
        """Add results of tools, without pydantic-ai's notes for the model about its output."""
        notes = self._model.output_names
        for request in requests:
            parts = [
                each for each in request.parts if not isinstance(each, ToolReturnPart) or each.tool_name not in notes
            ]
            calls = {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}
            for message in request_to_messages(ModelRequest(parts=parts)) if parts else ():
                is_new = bool(calls & self._calls.performed) or self._model.is_new
                self._messages.add(without_timestamps(message), replayed=not is_new)

    def _response(self, output: Any) -> AgentResponse:
        value, usage = output if self.has_value else None, usage_of(self._usage)
        ended: dict[str, Any] = {"agent_id": self.id, "value": value, "finish_reason": "stop"}
        self._messages.emit_replayed()
        if is_streaming():
            emit_update(AgentResponseUpdate(contents=(Content.from_usage(usage),), **ended))
        return AgentResponse(messages=tuple(self._messages.messages), usage_details=usage, **ended)


def without_timestamps(message: Message) -> Message:
    """Without the times of its parts: a repeated turn would have other times, and so other messages."""
    extra = dict((message.additional_properties or {}).get(EXTRA, {}))
    parts = [{name: value for name, value in part.items() if name != "timestamp"} for part in extra.pop("parts", ())]
    if any(part.keys() - {"part_kind"} for part in parts) or len(parts) != len(message.contents):
        extra["parts"] = parts
    return msgspec.structs.replace(message, additional_properties={EXTRA: extra} if extra else None)
