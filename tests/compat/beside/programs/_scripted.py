"""Agents and model clients of the framework that reply from a script, and what an event or an update shows."""

from collections.abc import Sequence
from typing import Any

import agent_framework as af

KINDS = ("output", "intermediate")


class Echo(af.BaseAgent):  # type: ignore[misc]
    """Replies with these words, which it streams one by one."""

    def __init__(self, name: str, *words: str) -> None:
        super().__init__(id=name, name=name)
        self.words = words

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        return af.ResponseStream(self._updates(), finalizer=af.AgentResponse.from_updates) if stream else self._reply()

    async def _reply(self) -> Any:
        message = af.Message("assistant", ["".join(self.words)], author_name=self.name, message_id=f"m-{self.name}")
        return af.AgentResponse(messages=[message], response_id=f"r-{self.name}")

    async def _updates(self) -> Any:
        for word in self.words:
            yield af.AgentResponseUpdate(
                contents=[af.Content.from_text(word)],
                role="assistant",
                author_name=self.name,
                response_id=f"r-{self.name}",
                message_id=f"m-{self.name}",
            )


class Client(af.FunctionInvocationLayer, af.BaseChatClient):  # type: ignore[misc]
    """Its n-th request gets the n-th reply, later ones the last: texts and contents, each of them an update."""

    def __init__(self, *replies: Sequence[Any]) -> None:
        super().__init__()
        self.replies = replies
        self.requests = 0
        self.seen: list[list[str]] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        reply = self.replies[min(self.requests, len(self.replies) - 1)]
        self.requests += 1
        self.seen.append([f"{message.role}: {message.text}" for message in messages])
        number, kind = self.requests, options.get("response_format")
        contents = [af.Content.from_text(item) if isinstance(item, str) else item for item in reply]

        async def updates() -> Any:
            for content in contents:
                yield af.ChatResponseUpdate(
                    role="assistant", contents=[content], message_id=f"m{number}", response_id=f"r{number}"
                )

        async def response() -> Any:
            message = af.Message("assistant", contents, message_id=f"m{number}")
            return af.ChatResponse(messages=[message], response_id=f"r{number}", response_format=kind)

        if not stream:
            return response()
        return af.ResponseStream(
            updates(), finalizer=lambda parts: af.ChatResponse.from_updates(parts, output_format_type=kind)
        )


def agent(name: str, *replies: Sequence[Any], **options: Any) -> Any:
    return af.Agent(client=Client(*replies), name=name, **options)


def show(event: Any) -> list[Any]:
    data = event.data
    shown = [event.type, event.executor_id, type(data).__name__, getattr(data, "text", None), event.origin.name]
    return [*shown, getattr(data, "author_name", None), getattr(data, "message_id", None)]


async def streamed(workflow: Any, *args: Any, **options: Any) -> tuple[list[Any], Any]:
    """The events of a streamed run that programs read, and its result."""
    stream = workflow.run(*args, stream=True, **options)
    events = [show(event) async for event in stream if event.type in KINDS]
    return events, await stream.get_final_response()


async def texts(workflow: Any, *args: Any, **options: Any) -> list[Any]:
    """The outputs of a run that is not streamed."""
    return [[type(output).__name__, output.text] for output in (await workflow.run(*args, **options)).get_outputs()]
