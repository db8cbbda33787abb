"""What the programs of teams share: agents that follow a script, and results as plain values."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    AgentResponseUpdate,
    BaseAgent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)


def as_list(messages: Any) -> list[Any]:
    if messages is None:
        return []
    return list(messages) if isinstance(messages, (list, tuple)) else [messages]


def text_of(message: Any) -> str:
    return message if isinstance(message, str) else f"{message.author_name or message.role}: {message.text}"


class Scripted(BaseAgent):
    """Answers with its texts, one after another; `seen` lists the messages of each request."""

    def __init__(self, name: str | None, *answers: str, description: str | None = None) -> None:
        super().__init__(name=name, description=description)
        self.answers = answers
        self.seen: list[list[str]] = []

    def answer(self) -> str:
        return self.answers[(len(self.seen) - 1) % len(self.answers)]

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        self.seen.append([text_of(message) for message in as_list(messages)])
        text = self.answer()
        if stream:

            async def updates() -> AsyncIterator[AgentResponseUpdate]:
                yield AgentResponseUpdate(contents=[Content.from_text(text)], role="assistant", author_name=self.name)

            return ResponseStream(updates(), finalizer=AgentResponse.from_updates)

        async def whole() -> AgentResponse:
            return AgentResponse(messages=[Message("assistant", [text], author_name=self.name)])

        return whole()


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A client whose model answers with texts, and calls a tool for each dict of a name and arguments."""

    def __init__(self, *answers: str | dict[str, Any]) -> None:
        super().__init__()
        self.answers = answers
        self.requests: list[list[str]] = []
        self.options: list[Mapping[str, Any]] = []

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        self.requests.append([self._described(message) for message in messages])
        self.options.append(options)
        number = len(self.requests)
        item = self.answers[(number - 1) % len(self.answers)]
        if isinstance(item, str):
            contents = [Content.from_text(item)]
        else:
            contents = [
                Content.from_function_call(f"call-{number}-{name}", name, arguments=arguments)
                for name, arguments in item.items()
            ]
        if stream:

            async def updates() -> AsyncIterable[ChatResponseUpdate]:
                yield ChatResponseUpdate(contents=contents, role="assistant")

            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

        async def whole() -> ChatResponse:
            return ChatResponse(
                messages=[Message("assistant", contents)],
                response_id=f"response-{number}",
                response_format=options.get("response_format"),
            )

        return whole()

    @staticmethod
    def _described(message: Message) -> str:
        parts = [content.text if content.type == "text" else content.type for content in message.contents]
        return f"{message.role}: {' '.join(str(part) for part in parts)}"


def chat_agent(name: str, *answers: str | dict[str, Any], **options: Any) -> Agent[Any]:
    return Agent(
        client=ScriptedClient(*answers),
        name=name,
        id=name,
        require_per_service_call_history_persistence=True,
        **options,
    )


def plain(value: Any) -> Any:
    """Texts of messages and responses, with their authors; the class of other objects."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    kind = type(value).__name__
    if kind == "Message":
        return text_of(value)
    if kind == "AgentResponse":
        return [kind, *[text_of(message) for message in value.messages]]
    if kind == "AgentExecutorResponse":
        return [kind, value.executor_id, plain(value.agent_response), plain(value.full_conversation)]
    if hasattr(value, "agent_response"):
        return [kind, plain(value.agent_response)]
    return kind


def described(result: Any) -> Any:
    """The outputs, intermediate outputs, requests and state of a run."""
    return {
        "outputs": plain(result.get_outputs()),
        "intermediate": plain(result.get_intermediate_outputs()),
        "requests": [[event.source_executor_id, plain(event.data)] for event in result.get_request_info_events()],
        "state": str(getattr(result.get_final_state(), "value", result.get_final_state())),
    }


async def failure_of(call: Callable[[], Any]) -> Any:
    """The kind of error of a call, by the classes that programs catch."""
    try:
        value = call()
        if hasattr(value, "__await__"):
            await value
    except Exception as error:  # noqa: BLE001  # any may be compared
        kinds = (TypeError, RuntimeError, ValueError, LookupError)
        return next((kind.__name__ for kind in kinds if isinstance(error, kind)), type(error).__name__)
    return None
