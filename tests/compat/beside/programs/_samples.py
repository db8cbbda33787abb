"""What the programs in the form of samples share: what they print is their result."""

import contextlib
import functools
import io
import re
from collections.abc import Awaitable, Callable
from typing import Any

from _scripted import Client
from agent_framework import Agent, Content


def printed(sample: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[list[str]]]:
    """A program whose result is the lines that the sample prints. Random ids are numbered in their order."""

    @functools.wraps(sample)
    async def main() -> list[str]:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            await sample()
        ids: dict[str, str] = {}
        uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
        text = re.sub(uuid, lambda match: ids.setdefault(match.group(), f"id-{len(ids)}"), output.getvalue())
        return text.splitlines()

    return main


def call(name: str, **arguments: Any) -> Any:
    return Content.from_function_call(f"call-{name}", name, arguments=arguments)


def talker(name: str, *replies: str | list[Any], **options: Any) -> Any:
    """An agent whose replies come word by word."""
    scripts = [reply if isinstance(reply, list) else re.findall(r"\S+\s*", reply) for reply in replies]
    return Agent(client=Client(*scripts), name=name, description=f"{name} helps", **options)


async def show_updates(stream: Any) -> dict[str, Any]:
    """Print the outputs of a streamed run, the updates of an agent on one line, and return its requests."""
    requests, speaker = {}, None
    async for event in stream:
        if event.type == "request_info":
            requests[event.request_id] = event.data
        elif event.type in ("output", "intermediate"):
            name, text = getattr(event.data, "author_name", None), getattr(event.data, "text", event.data)
            if name is None or name != speaker:
                print(f"\n{event.type} {event.executor_id} {name}: ", end="")
            speaker = name
            print(text, end="|")
    print()
    return requests
