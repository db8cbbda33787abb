"""Context providers around a workflow that is an agent: their hooks, their state, and the messages that they add."""

from typing import Any

import agent_framework as af
from _scripted import Echo
from flows import WorkflowBuilder


class Reads(Echo):
    def __init__(self) -> None:
        super().__init__("reads", "an", "swer")
        self.got: list[Any] = []

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        self.got.append([f"{message.role}: {message.text}" for message in messages])
        return super().run(messages, stream=stream, session=session)


class Notes(af.ContextProvider):  # type: ignore[misc]  # an untyped base
    def __init__(self, source_id: str, log: list[Any]) -> None:
        super().__init__(source_id)
        self.log = log

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        state["turns"] = state.get("turns", 0) + 1
        self.log.append([self.source_id, agent.name, [message.text for message in context.input_messages]])
        note = af.Message("system", [f"{self.source_id} {state['turns']}"])
        context.extend_messages(self.source_id, [note])

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        self.log.append([self.source_id, context.response and context.response.text, dict(state)])


class Archive(af.HistoryProvider):  # type: ignore[misc]  # an untyped base
    def __init__(self, *texts: str, **options: Any) -> None:
        super().__init__("archive", **options)
        self.kept = [af.Message("user", [text]) for text in texts]

    async def get_messages(self, session_id: Any, *, state: Any = None, **kwargs: Any) -> Any:
        return list(self.kept)

    async def save_messages(self, session_id: Any, messages: Any, *, state: Any = None, **kwargs: Any) -> None:
        self.kept += list(messages)


async def main() -> Any:
    results: dict[str, Any] = {}
    for stream in (False, True):
        reads, log = Reads(), []
        notes = [Notes("first", log), Notes("second", log)]
        agent = WorkflowBuilder(start_executor=reads).build().as_agent("agent", context_providers=notes)
        session = af.AgentSession(session_id="s")
        for text in ("one", "two"):
            if stream:
                async for _ in agent.run(text, stream=True, session=session):
                    pass
            else:
                await agent.run(text, session=session)
        results[f"notes, {stream}"] = [log, reads.got[0], session.state["first"], session.state["second"]]
    for loads in (True, False):
        reads, archive = Reads(), Archive("before", load_messages=loads)
        agent = WorkflowBuilder(start_executor=reads).build().as_agent("agent", context_providers=[archive])
        await agent.run("now", session=agent.create_session())
        results[f"archive, {loads}"] = [reads.got, [message.text for message in archive.kept]]
    return results
