"""Agents of the OpenAI Agents SDK, run by its Runner: model requests and function tools are recorded call by call."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Container, Iterable, Sequence
from typing import Any

import agents as sdk
from agents.tool_context import ToolContext as SdkToolContext
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from perdure.agents.base import RecordingAgent, calls_of, is_from
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.recording import (
    BadAnswerRetry,
    ask_for_approval,
    current_delivery,
    edited_arguments,
    emit_updates_to,
    record_call,
    request_id_for,
    turn_failure,
)
from perdure.agents.tools import Rejected, Tool, as_tool
from perdure.errors import InvalidRun, PerdureError

BAD_ANSWER_ERRORS = (
    sdk.MaxTurnsExceeded,
    sdk.ModelBehaviorError,
    sdk.ModelRefusalError,
    sdk.OutputGuardrailTripwireTriggered,
    sdk.ToolInputGuardrailTripwireTriggered,
    sdk.ToolOutputGuardrailTripwireTriggered,
)
"""Errors of the SDK that a model's answers cause: replayed answers raise them again."""
RESULTS = (sdk.ToolCallOutputItem, sdk.HandoffOutputItem)
CALLS = (sdk.ToolCallItem, sdk.HandoffCallItem)
TOKENS = ("input", "output", "total")
BAD_ANSWER_ADVICE = (
    "Finished calls of the turn are recorded. Correct the model, its tools or its instructions, and resume: the model "
    "is asked again after them, as often as in a new turn."
)


def finished_items(items: list[Any]) -> list[Any]:
    """Without the last answer, which has no results, and without calls that have no result."""
    last = max((index for index, item in enumerate(items) if isinstance(item, RESULTS)), default=-1)
    remaining = items[: last + 1]
    finished = {_call_id(item) for item in remaining if isinstance(item, RESULTS)}
    return [item for item in remaining if not isinstance(item, CALLS) or _call_id(item) in finished]


def _call_id(item: Any) -> Any:
    return _field(item.raw_item, "call_id")


RESPONSE: TypeAdapter[sdk.ModelResponse] = TypeAdapter(sdk.ModelResponse)


@dataclasses.dataclass
class Requests:
    """The requests of one turn, by all agents that take part in it."""

    agent_name: str
    count: int = 0
    is_failed: bool = False
    """Whether the last request failed: a repeated turn makes it again."""
    edited: dict[str, str] = dataclasses.field(default_factory=dict)
    """By call: arguments of an approval that replace the model's."""
    editable: set[str] = dataclasses.field(default_factory=set)
    """Names of tools that accept replaced arguments. The SDK calls others, such as those of MCP servers, with the
    model's arguments."""

    def key_of(self, call_id: str) -> str:
        """Distinguishes a call from other calls of the turn: some models repeat ids."""
        return f"{call_id}-{self.count}"


class RecordingOpenAIModel(sdk.Model):  # type: ignore[misc]  # the SDK is not type-checked
    """A wrapped model for one turn: a recorded request is not repeated."""

    def __init__(self, wrapped: sdk.Model, requests: Requests) -> None:
        self._wrapped = wrapped
        self._requests = requests

    async def get_response(self, *args: Any, **kwargs: Any) -> sdk.ModelResponse:
        self._requests.count += 1

        async def ask_model() -> str:
            return RESPONSE.dump_json(await self._wrapped.get_response(*args, **kwargs)).decode()

        name, key = f"{self._requests.agent_name}.model", str(self._requests.count)
        self._requests.is_failed = True
        answer = await record_call(ask_model, name=name, key=key)
        self._requests.is_failed = False
        return RESPONSE.validate_json(answer)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise PerdureError(f"Agent {self._requests.agent_name!r} cannot stream: its requests are recorded.")


class RecordingProvider(sdk.ModelProvider):  # type: ignore[misc]
    def __init__(self, wrapped: sdk.ModelProvider, requests: Requests) -> None:
        self._wrapped = wrapped
        self._requests = requests

    def get_model(self, model_name: str | None) -> sdk.Model:
        return RecordingOpenAIModel(self._wrapped.get_model(model_name), self._requests)


class SdkAgent(RecordingAgent):
    """Runs an agent of the SDK with the messages of the session."""

    def __init__(self, agent: sdk.Agent[Any]) -> None:
        super().__init__(agent.name, description=agent.handoff_description)
        self.agent = agent
        kind = agent.output_type
        is_plain = kind in (None, str) or isinstance(kind, sdk.AgentOutputSchemaBase)
        self.value_types = () if is_plain else (kind,)

    async def turn(
        self,
        messages: list[Message],
        session: AgentSession | None,
        *,
        tools: Iterable[Any] = (),
        response_format: Any = None,
        **kwargs: Any,
    ) -> AgentResponse:
        requests = Requests(self.name)
        defaults = sdk.RunConfig()
        config = dataclasses.replace(defaults, model_provider=RecordingProvider(defaults.model_provider, requests))
        conversation = [*(session.messages if session is not None else ()), *messages]
        agent = _record_agent(self.agent, requests, [as_tool(tool) for tool in tools], response_format)
        own_calls = calls_of(conversation, self.name)
        theirs = [item for message in conversation for item in self._as_theirs(message, own_calls)]
        items, usage, result = await self._run_until_done(agent, theirs, config, requests)
        # A tool that ended the turn has the last item: its result is not an output of the model.
        is_cut = isinstance(result.new_items[-1] if result.new_items else None, sdk.ToolCallOutputItem)
        has_value = agent.output_type not in (None, str) and not is_cut
        return AgentResponse(
            messages=tuple(message for item in items for message in self._as_ours(item)),
            agent_id=self.id,
            response_id=result.last_response_id,
            usage_details={f"{kind}_token_count": getattr(usage, f"{kind}_tokens") for kind in TOKENS},
            value=result.final_output if has_value else None,
            finish_reason="stop",
        )

    async def _run_until_done(
        self, agent: sdk.Agent[Any], conversation: list[Any], config: sdk.RunConfig, requests: Requests
    ) -> tuple[list[Any], sdk.Usage, Any]:
        """All items, all usage, and the last result."""
        before, usage, bad_answers = list[Any](), sdk.Usage(), BadAnswerRetry(self.name)
        while True:
            try:
                messages: Any = [*conversation, *(item.to_input_item() for item in before)]
                result = await sdk.Runner.run(agent, messages, run_config=config)
                while result.interruptions:
                    state = await self._answer_interruptions(result, requests)
                    result = await sdk.Runner.run(agent, state, run_config=config)
            except BAD_ANSWER_ERRORS as error:
                failure = turn_failure(self.name, error, BAD_ANSWER_ADVICE)
                if requests.is_failed or error.run_data is None:
                    raise failure from error
                await bad_answers.report(failure)
                usage.add(error.run_data.context_wrapper.usage)
                before += finished_items(error.run_data.new_items)
                agent = error.run_data.last_agent
                continue
            usage.add(result.context_wrapper.usage)
            return [*before, *result.new_items], usage, result

    async def _answer_interruptions(self, result: Any, requests: Requests) -> Any:
        """The state to continue from, after the SDK's requests are answered. Raises InvalidRun outside of a workflow,
        which cannot ask."""
        if current_delivery() is None:
            names = ", ".join(repr(item.name) for item in result.interruptions)
            raise InvalidRun(
                f"Agent {self.name!r} needs approval for its calls of {names}, and cannot ask outside of a workflow. "
                "These calls were not made. Run it in a workflow."
            )
        state = result.to_state()
        answers = await asyncio.gather(
            *(_answer_to(item, requests.key_of(item.call_id)) for item in result.interruptions)
        )
        for item, answer in zip(result.interruptions, answers, strict=True):
            arguments = edited_arguments(answer, _call_of(item))
            edited = None if arguments is None else _json(arguments)
            if not answer.approved:
                state.reject(item, rejection_message=str(Rejected(answer.reason)))
            elif edited is not None and item.name not in requests.editable:
                state.reject(item, rejection_message=f"It is approved only with these arguments: {edited}")
            else:
                if edited is not None:
                    requests.edited[requests.key_of(item.call_id)] = edited
                state.approve(item)
        return state

    def _as_theirs(self, message: Message, own_calls: Container[str | None]) -> list[Any]:
        """For its model, with results of its own calls only."""
        text, items = message.text, list[Any]()
        is_another = message.role == "assistant" and not is_from(message, self.name)
        if text:
            role = "user" if is_another or message.role == "tool" else message.role
            items.append({"role": role, "content": f"{message.author_name}: {text}" if is_another else text})
        for content in () if is_another else message.contents:
            if content.type == "function_call":
                arguments = content.arguments if isinstance(content.arguments, str) else _json(content.arguments or {})
                items.append(
                    {"type": "function_call", "call_id": content.call_id, "name": content.name, "arguments": arguments}
                )
            elif content.type == "function_result" and content.call_id in own_calls:
                result = content.result if content.exception is None else content.exception
                output = result if isinstance(result, str) else _json(result)
                items.append({"type": "function_call_output", "call_id": content.call_id, "output": output})
        return items

    def _as_ours(self, item: Any) -> Sequence[Message]:
        raw = item.raw_item
        if isinstance(item, sdk.MessageOutputItem):
            return [Message("assistant", sdk.ItemHelpers.text_message_output(item), self.name, raw.id)]
        if isinstance(item, CALLS) and _field(raw, "type") == "function_call":
            name, arguments = str(_field(raw, "name")), _field(raw, "arguments")
            call = Content.from_function_call(str(_call_id(item)), name, arguments=arguments)
            return [Message("assistant", call, self.name)]
        if isinstance(item, RESULTS):
            result = to_jsonable_python(_field(raw, "output"), fallback=str)
            return [Message("tool", Content.from_function_result(str(_call_id(item)), result=result))]
        return []


async def _answer_to(item: Any, key: str) -> Content:
    request_id = request_id_for(key)
    request = Content.from_function_approval_request(request_id, _call_of(item))
    answer = await ask_for_approval(request, key=request_id)
    assert answer is not None  # noqa: S101  # called only inside of a workflow
    return answer


def _call_of(item: Any) -> Content:
    return Content.from_function_call(item.call_id, item.name, arguments=item.arguments)


def _as_their_tool(tool: Tool) -> Any:
    if tool.context_parameter is not None:
        raise TypeError(f"The tool {tool.name!r} takes a ToolContext, which the OpenAI Agents SDK does not provide.")

    async def needs_approval(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return tool.needs_approval(arguments)

    return sdk.function_tool(
        tool.function,
        name_override=tool.name,
        description_override=tool.description,
        strict_mode=False,
        needs_approval=needs_approval,
    )


def _record_agent(
    agent: sdk.Agent[Any], requests: Requests, tools: Sequence[Tool] = (), response_format: Any = None
) -> sdk.Agent[Any]:
    """A copy with a recorded model and recorded function tools, these included, and with this type of output."""
    all_tools = (*agent.tools, *map(_as_their_tool, tools))
    changes: dict[str, Any] = {"tools": [_record_tool(tool, requests) for tool in all_tools]}
    if response_format is not None:
        changes["output_type"] = response_format
    last = [tool.name for tool in tools if tool.ends_turn]
    if last:
        changes["tool_use_behavior"] = sdk.StopAtTools(stop_at_tool_names=last)
    if isinstance(agent.model, sdk.Model):
        changes["model"] = RecordingOpenAIModel(agent.model, requests)
    changes["handoffs"] = [_record_agent(to, requests) if isinstance(to, sdk.Agent) else to for to in agent.handoffs]
    return agent.clone(**changes)


def _record_tool(tool: Any, requests: Requests) -> Any:
    if not isinstance(tool, sdk.FunctionTool):
        return tool
    invoke = tool.on_invoke_tool
    requests.editable.add(tool.name)

    async def on_invoke_tool(context: SdkToolContext[Any], arguments: str) -> Any:
        async def make_call() -> Any:
            effective = requests.edited.get(requests.key_of(context.tool_call_id), arguments)
            with emit_updates_to(None):  # agents inside of a tool emit no updates here
                return to_jsonable_python(await invoke(context, effective), fallback=str)

        key = requests.key_of(context.tool_call_id)
        return await record_call(make_call, name=f"{requests.agent_name}.tool.{tool.name}", key=key)

    return dataclasses.replace(tool, on_invoke_tool=on_invoke_tool)


def _field(raw: Any, name: str) -> Any:
    return raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)


def _json(value: Any) -> str:
    return str(TypeAdapter(Any).dump_json(value, fallback=str), "utf-8")


def adapt(agent: Any) -> Any:
    """Other objects of the package, such as sessions, are not agents, and stay unchanged."""
    return SdkAgent(agent) if isinstance(agent, sdk.Agent) else agent
