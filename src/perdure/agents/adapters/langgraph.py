"""A runnable of LangGraph whose state has `messages`, such as a compiled graph. A turn is recorded as a whole."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable

from perdure.agents.base import BaseAgent
from perdure.agents.conversation.content import Content, add_usage
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.errors import PerdureError


class GraphAgent(BaseAgent):
    """Invokes a runnable with all messages so far, and answers with those that it adds."""

    def __init__(self, runnable: Runnable[Any, Any]) -> None:
        super().__init__(runnable.get_name())
        self.runnable = runnable

    async def run(  # type: ignore[override]  # it does not stream
        self, messages: Any = None, *, session: AgentSession | None = None
    ) -> AgentResponse:
        heard = [*(session.messages if session is not None else ()), *as_messages(messages)]
        given = self._given(heard)
        state = await self.runnable.ainvoke({"messages": given})
        if isinstance(state, Mapping) and "__interrupt__" in state:
            raise PerdureError(
                f"The graph {self.name!r} interrupts itself, which nobody can answer here: the turn is recorded as a "
                "whole. Ask in the workflow, before or after it."
            )
        found = state.get("messages") if isinstance(state, Mapping) else [state]
        if not isinstance(found, list) or not all(isinstance(one, BaseMessage) for one in found):
            raise TypeError(
                f"The runnable {self.name!r} gave {state!r}. Expected a state with a list of messages in 'messages'."
            )
        new = found[len(given) :] if isinstance(state, Mapping) else found
        usage: dict[str, int] = {}
        for one in new:
            usage = add_usage(usage, _usage(one))
        value = state.get("structured_response") if isinstance(state, Mapping) else None
        said = tuple(self._as_ours(one) for one in new)
        return AgentResponse(messages=said, agent_id=self.id, usage_details=usage or None, value=value)

    def _given(self, heard: Sequence[Message]) -> list[AnyMessage]:
        """What its model is told: results only of its own calls, since those of others are left out."""
        own = {one.call_id for message in heard for one in message.of_type("function_call") if self._is_own(message)}
        return [their for message in heard for their in self._as_theirs(message, own)]

    def _is_own(self, message: Message) -> bool:
        return message.role == "assistant" and message.author_name in (None, self.name)

    def _as_theirs(self, message: Message, own_calls: Container[str | None]) -> list[AnyMessage]:
        text = message.text
        if message.role == "system":
            return [SystemMessage(text)]
        if message.role == "assistant" and not self._is_own(message):
            return [HumanMessage(f"{message.author_name}: {text}")] if text else []
        if message.role == "assistant":
            calls = [
                {"name": str(one.name), "args": one.parse_arguments(), "id": str(one.call_id), "type": "tool_call"}
                for one in message.of_type("function_call")
            ]
            return [AIMessage(text, tool_calls=calls)]
        results = [
            ToolMessage(str(one.result if one.exception is None else one.exception), tool_call_id=str(one.call_id))
            for one in message.of_type("function_result")
            if one.call_id in own_calls
        ]
        is_said = bool(text) or not any(content.type.startswith("function_") for content in message.contents)
        return [*results, HumanMessage(text)] if is_said else list(results)

    def _as_ours(self, message: BaseMessage) -> Message:
        if isinstance(message, ToolMessage):
            return Message("tool", Content.from_function_result(message.tool_call_id, result=str(message.text)))
        if not isinstance(message, AIMessage):
            role = "system" if isinstance(message, SystemMessage) else "user"
            return Message(role, str(message.text), message_id=message.id)
        said = [Content.from_text(str(message.text))] if message.text else []
        calls = [
            Content.from_function_call(str(call["id"]), call["name"], arguments=call["args"])
            for call in message.tool_calls
        ]
        return Message("assistant", [*said, *calls], self.name, message.id)


def _usage(message: BaseMessage) -> dict[str, int]:
    counts = getattr(message, "usage_metadata", None) or {}
    names = {"input_tokens": "input_token_count", "output_tokens": "output_token_count"}
    names["total_tokens"] = "total_token_count"
    return {ours: counts[theirs] for theirs, ours in names.items() if theirs in counts}


def adapt(agent: Runnable[Any, Any]) -> GraphAgent:
    return GraphAgent(agent)
