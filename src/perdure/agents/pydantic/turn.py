"""One turn of an agent of pydantic-ai: its model requests and its tool calls are recorded, and told as they come."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

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
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.pydantic.approvals import Pending, asked_for, verdicts, without_requests
from perdure.agents.pydantic.messages import from_messages, timeless, to_messages
from perdure.agents.pydantic.model import RecordingModel, Voice, usage_of
from perdure.agents.pydantic.toolset import RecordingToolset, ToolCalls, finished_calls
from perdure.agents.recording import DeadEnds, is_heard, tell
from perdure.agents.tools import Tool
from perdure.errors import AgentFailed, PerdureError, UsageLimitReached
from perdure.graph.policy import RetryPolicy, Seconds

# ---------------------------------------------------------------- errors


@contextmanager
def told_of(agent_name: str) -> Iterator[None]:
    """Errors of models and of pydantic-ai name the agent, and say what is left of the turn."""
    try:
        yield
    except UsageLimitExceeded as error:
        raise UsageLimitReached(
            agent_name,
            f"a limit of its usage was reached: {_sentence(error)}",
            "Finished calls of the turn are recorded. Give it other usage_limits and resume, or say something else.",
        ) from error
    except PerdureError:
        raise
    except Exception as error:
        raise AgentFailed(
            agent_name,
            f"its turn failed with {type(error).__name__}: {_sentence(error)}",
            "Finished calls of the turn are recorded, and a resume goes on after them.",
        ) from error


def dead_end(agent_name: str, error: Exception) -> AgentFailed:
    """Of a turn whose model gave nothing that can be used, as often as it was asked."""
    failure = AgentFailed(
        agent_name,
        f"its turn failed with {type(error).__name__}: {_sentence(error)}",
        "Finished calls of the turn are recorded. Mend the model, its tools or what it is told, and resume: the model "
        "is asked again, without the answers that led here.",
    )
    failure.__cause__ = error
    return failure


def _sentence(error: Exception) -> str:
    text = str(error).strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


# ---------------------------------------------------------------- going back


ASKS_AGAIN = ("retry-prompt", "retry-feedback")
"""Parts by which pydantic-ai asks a model for another answer."""


class Left(NamedTuple):
    messages: list[ModelMessage]
    dropped: int
    """How many answers of the model were taken out, from the last one on."""
    is_last_cut: bool
    """Whether the last message is an answer that was longer before."""


def without_dead_end(before: Sequence[ModelMessage], new: Sequence[ModelMessage], finished: Container[str]) -> Left:
    """Without the last answers, as far as nothing came of them. Of one whose calls are `finished` in part these stay:
    they are not made again. `before` stays as it is."""
    kept = list(new)
    dropped = 0
    while kept:
        last = kept[-1]
        if isinstance(last, ModelResponse):
            parts = [part for part in last.parts if not isinstance(part, ToolCallPart) or part.tool_call_id in finished]
            if any(isinstance(part, ToolCallPart) for part in parts):
                kept[-1] = replace(last, parts=parts)
                return Left([*before, *kept], dropped, is_last_cut=True)
            dropped += 1
        elif not _only_asks_again(last):
            break
        kept.pop()
    return Left([*before, *kept], dropped, is_last_cut=False)


def _only_asks_again(request: ModelRequest) -> bool:
    return all(part.part_kind in ASKS_AGAIN or _is_retried(part) for part in request.parts)


def _is_retried(part: object) -> bool:
    return isinstance(part, ToolReturnPart) and part.outcome == "retried"


GO_ON = "Please go on."
"""Said to a model that has the last word already: it is asked again, and wants to know what for."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn is taken with."""

    name: str
    """Of the agent: its steps are found again by it."""
    id: str
    agent: pydantic_ai.Agent[Any, Any]
    model: Model | str
    toolsets: tuple[AbstractToolset[Any], ...] = ()
    tools: Mapping[str, Tool] = {}  # msgspec copies it
    """Those in the toolsets that are ours."""
    output_type: Any = None
    has_value: bool = False
    """Whether what comes out is more than a text."""
    retry: RetryPolicy | int | None = None
    timeout: Seconds | None = None
    usage_limits: UsageLimits | None = None
    options: Mapping[str, Any] = {}
    """Others, for a run of the agent."""


class _DeadEnd(Exception):
    """What a model gave cannot be used, and it was asked often enough."""

    def __init__(self, error: Exception, before: list[ModelMessage], new: list[ModelMessage]) -> None:
        super().__init__(str(error))
        self.error = error
        self.before = before
        self.new = new


class Turn:
    """One turn. It is run again after a crash, and takes what was recorded."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._voice = Voice(setting.name, setting.id)
        with told_of(setting.name):
            model = infer_model(setting.model)
        policy: dict[str, Any] = {"retry": setting.retry, "timeout": setting.timeout}
        self._model = RecordingModel(model, setting.name, self._voice, **policy)
        self._calls = ToolCalls(self._model)
        self._usage = RunUsage()
        self._dead_ends = DeadEnds(setting.name)

    async def take(self, heard: Sequence[Message]) -> AgentResponse:
        """What comes of all that was said so far."""
        pending = Pending.among(heard, self._setting.name)
        if pending.is_waiting:
            self._voice.say(pending.asked_again(), replayed=False)
            return self._response(None)
        history = from_messages(without_requests(heard), self._setting.name)
        results = pending.results()
        if results is None and not (history and isinstance(history[-1], ModelRequest)) and not pending.calls:
            history.append(ModelRequest(parts=[UserPromptPart(GO_ON)]))
        with told_of(self._setting.name):
            while True:
                try:
                    output, history = await self._run(history, results)
                except _DeadEnd as end:
                    history = await self._gone_back(end)
                    results = results if len(history) == len(end.before) else None
                    continue
                if not isinstance(output, DeferredToolRequests):
                    return self._response(output)
                results = await verdicts(output, self._calls.name_of)
                if results is None:
                    if output.approvals or output.calls:
                        self._voice.say(asked_for(output, self._setting.name), replayed=False)
                    return self._response(None)

    # ------------------------------------------------------------ one run of the agent

    async def _run(
        self, history: list[ModelMessage], results: DeferredToolResults | None
    ) -> tuple[Any, list[ModelMessage]]:
        """What it gives, and all messages. It gives nothing where a tool ends the turn."""
        setting = self._setting
        toolsets = [
            RecordingToolset(toolset, agent_name=setting.name, tools=setting.tools, calls=self._calls)
            for toolset in setting.toolsets
        ]
        # Otherwise the first request is what the agent was just told.
        is_news = results is not None or isinstance(history[-1], ModelResponse)
        with setting.agent.override(model=self._model, toolsets=toolsets, tools=[]):
            async with setting.agent.iter(
                message_history=history,
                deferred_tool_results=results,
                output_type=setting.output_type,
                usage_limits=setting.usage_limits,
                usage=self._usage,
                infer_name=False,
                **setting.options,
            ) as run:
                node: Any = run.next_node
                while not isinstance(node, End):
                    if isinstance(node, ModelRequestNode):
                        if is_news:
                            self._say_results([node.request])
                        is_news = True
                        if self._calls.ended_by:
                            return None, run.all_messages()
                    node = await self._next(run, node)
                said = run.new_messages()
                self._say_results(said[-1:] if said and isinstance(said[-1], ModelRequest) else ())
                assert run.result is not None  # noqa: S101  # it has come to its end
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
            raise _DeadEnd(error, before, new) from error

    async def _gone_back(self, end: _DeadEnd) -> list[ModelMessage]:
        """To before the answers that led to a dead end. Raises AgentFailed, if nobody was told of that yet."""
        name = self._setting.name
        await self._dead_ends.meet(dead_end(name, end.error))
        last = end.new[-1] if end.new else None
        finished = await finished_calls(last, self._calls, name) if isinstance(last, ModelResponse) else set()
        left = without_dead_end(end.before, end.new, finished)
        cut = left.messages[-1] if left.is_last_cut else None
        self._model.take_back(left.dropped, cut if isinstance(cut, ModelResponse) else None)
        return left.messages

    def _say_results(self, requests: Iterable[Any]) -> None:
        """What tools gave, without the notes that pydantic-ai makes for the model about its output."""
        for request in requests:
            parts = [part for part in request.parts if not self._is_note(part)]
            calls = {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}
            for message in to_messages([ModelRequest(parts=parts)]) if parts else ():
                is_new = bool(calls & self._calls.made) or self._model.is_made
                self._voice.say(timeless(message), replayed=not is_new)

    def _is_note(self, part: Any) -> bool:
        return isinstance(part, ToolReturnPart) and part.tool_name in self._model.output_names

    # ------------------------------------------------------------ what came of it

    def _response(self, output: Any) -> AgentResponse:
        response = AgentResponse(
            messages=tuple(self._voice.said),
            agent_id=self._setting.id,
            usage_details=usage_of(self._usage),
            value=output if self._setting.has_value else None,
            finish_reason="stop",
        )
        self._voice.catch_up()
        if is_heard():
            usage = Content.from_usage(response.usage_details or {})
            tell(
                AgentResponseUpdate(
                    contents=(usage,),
                    agent_id=response.agent_id,
                    value=response.value,
                    finish_reason=response.finish_reason,
                )
            )
        return response
