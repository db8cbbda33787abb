"""Runnables of LangGraph whose state has `messages`, such as compiled graphs. A turn is recorded as a whole."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import reduce
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable

from perdure.agents.base import BaseAgent, calls_of, is_from
from perdure.agents.conversation.content import Content, add_usage
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse
from perdure.errors import PerdureError


class GraphAgent(BaseAgent):
    """Invokes a runnable with all messages, and returns those that it adds."""

    def __init__(self, runnable: Runnable[Any, Any]) -> None:
        super().__init__(runnable.get_name())
        self.runnable = runnable

    async def run(  # type: ignore[override]  # it does not stream
        self, messages: Any = None, *, session: AgentSession | None = None
    ) -> AgentResponse:
        conversation = [*(session.messages if session is not None else ()), *as_messages(messages)]
        own_calls = calls_of(conversation, self.name)
        sent = [theirs for message in conversation for theirs in self._as_theirs(message, own_calls)]
        state = await self.runnable.ainvoke({"messages": sent})
        if isinstance(state, Mapping) and "__interrupt__" in state:
            raise PerdureError(
                f"The graph {self.name!r} interrupts itself, and an interrupt cannot be answered here: the turn is "
                "recorded as a whole. Ask in the workflow, before or after it."
            )
        result = state.get("messages") if isinstance(state, Mapping) else [state]
        if not isinstance(result, list) or not all(isinstance(message, BaseMessage) for message in result):
            raise TypeError(
                f"The runnable {self.name!r} returned {state!r}. Expected a state with messages in 'messages'."
            )
        new = result[len(sent) :] if isinstance(state, Mapping) else result
        usage: dict[str, int] = reduce(add_usage, map(_usage, new), {})
        value = state.get("structured_response") if isinstance(state, Mapping) else None
        ours = tuple(self._as_ours(message) for message in new)
        return AgentResponse(messages=ours, agent_id=self.id, usage_details=usage or None, value=value)

    def _as_theirs(self, message: Message, own_calls: Container[str | None]) -> list[AnyMessage]:
        """For its model, with results of its own calls only."""
        text = message.text
        if message.role == "system":
            return [SystemMessage(text)]
        if message.role == "assistant" and not is_from(message, self.name):
            return [HumanMessage(f"{message.author_name}: {text}")] if text else []
        if message.role == "assistant":
            calls = [
                {"name": str(call.name), "args": call.parse_arguments(), "id": str(call.call_id), "type": "tool_call"}
                for call in message.of_type("function_call")
            ]
            return [AIMessage(text, tool_calls=calls)]
        results = [
            ToolMessage(str(done.result if done.exception is None else done.exception), tool_call_id=str(done.call_id))
            for done in message.of_type("function_result")
            if done.call_id in own_calls
        ]
        has_text = bool(text) or not any(content.type.startswith("function_") for content in message.contents)
        return [*results, HumanMessage(text)] if has_text else list(results)

    def _as_ours(self, message: BaseMessage) -> Message:
        if isinstance(message, ToolMessage):
            return Message("tool", Content.from_function_result(message.tool_call_id, result=str(message.text)))
        if not isinstance(message, AIMessage):
            role = "system" if isinstance(message, SystemMessage) else "user"
            return Message(role, str(message.text), message_id=message.id)
        texts = [Content.from_text(str(message.text))] if message.text else []
        calls = [
            Content.from_function_call(str(call["id"]), call["name"], arguments=call["args"])
            for call in message.tool_calls
        ]
        return Message("assistant", [*texts, *calls], self.name, message.id)


def _usage(message: BaseMessage) -> dict[str, int]:
    counts = getattr(message, "usage_metadata", None) or {}
    kinds = [kind for kind in ("input", "output", "total") if f"{kind}_tokens" in counts]
    return {f"{kind}_token_count": counts[f"{kind}_tokens"] for kind in kinds}


adapt = GraphAgent
