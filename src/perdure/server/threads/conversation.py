"""The messages of a thread: its agent's session or, for other workflows, the inputs and outputs; and thread names."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor
from perdure.checkpoints.any_storage import load_checkpoint, read_events
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codec import DeclaredTypes
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.log import get_logger
from perdure.records import CheckpointInfo, ExecutorMemory
from perdure.server.config.schema import invalid
from perdure.server.problems import HttpProblem
from perdure.server.threads.agentflow import output_messages, place_id, to_messages, with_run_ids
from perdure.workflows.workflow import Workflow


class SpeakingExecutor(AgentExecutor):
    """An agent executor that gives each message an id.

    The id is derived from the thread and the position in the conversation, so a turn repeated after a crash gives the
    same ids.
    """

    is_stateless = True

    async def respond(self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> AgentResponse:
        response = await super().respond(messages, ctx)
        session = ctx.private["session"]
        ids, used = {}, set[str]()
        for at, message in enumerate(session.messages):
            if message.message_id is None or message.message_id in used:
                replacement = msgspec.structs.replace(message, message_id=_free_id(session.session_id, at, used))
                ids[id(message)] = session.messages[at] = replacement
            used.add(session.messages[at].message_id or "")
        if not ids:
            return response
        messages_with_ids = tuple(ids.get(id(message), message) for message in response.messages)
        if any(
            message.message_id is None for message in messages_with_ids
        ):  # the session holds copies: its last messages are the response
            messages_with_ids = tuple(session.messages[len(session.messages) - len(messages_with_ids) :])
        return msgspec.structs.replace(response, messages=messages_with_ids)


def _free_id(session_id: str, at: int, used: set[str]) -> str:
    """An id that is not in use: after a removal, another message may have the id of this position."""
    while (message_id := blake2b(f"{session_id}/{at}".encode(), digest_size=12).hexdigest()) in used:
        at += 1
    return message_id


logger = get_logger("server")

EVENTS_PER_TURN = 100
"""Events that are read from a log before other tasks run."""
MAX_CACHED_TURNS, MAX_CACHED_CHARACTERS = 5000, 2000
"""Turns whose input is cached, and the longest input that is cached."""
_INPUT_CACHE: WeakKeyDictionary[StoreCheckpointStorage, OrderedDict[str, list[Message]]] = WeakKeyDictionary()
SHOWN_TURNS = 100
"""Turns in the state of a workflow without an agent."""


def speaker(workflow: Workflow) -> str | None:
    """The id of the start executor if it is an agent: its session is the conversation."""
    start = workflow.get_start_executor()
    return start.id if isinstance(start, AgentExecutor) else None


async def conversation(
    storage: StoreCheckpointStorage,
    workflow: Workflow,
    head: WorkflowCheckpoint,
    *,
    first: int | None = None,
    last: int | None = None,
) -> list[Message]:
    """All messages, oldest first.

    For a workflow without an agent the history is read: at least the `first` messages, or those of the `last` turns.
    """
    agent_id = speaker(workflow)
    if agent_id is not None:
        return session_messages(head, agent_id)
    return await _from_history(storage, workflow, head, first, last)


def session_messages(head: WorkflowCheckpoint, agent_id: str) -> list[Message]:
    memory = head.executors.get(agent_id)
    private: Mapping[str, Any] = {} if memory is None else memory.private or {}
    session = private.get("session")
    if "conversation" in private:
        messages = list(private["conversation"])
    else:
        messages = list(session.messages[private.get("began", 0) :]) if isinstance(session, AgentSession) else []
    return [*messages, *private.get("cache", ())]


async def _from_history(
    storage: StoreCheckpointStorage, workflow: Workflow, head: WorkflowCheckpoint, first: int | None, last: int | None
) -> list[Message]:
    """Inputs are the deliveries of the checkpoints that runs begin with; outputs are in the log."""
    beginnings = await _beginnings(storage, workflow, head)
    selected = beginnings[:first] if last is None else beginnings[-last:]
    outputs = await _outputs(storage, workflow, head.thread_id, {info.run_id for info in selected})
    messages: list[Message] = []
    for info in selected:
        messages += await _load_input(storage, workflow, info)
        messages += with_run_ids(outputs.pop(info.run_id or "", []), f"{info.run_id}-out")
    return with_ids(messages)


async def _load_input(storage: StoreCheckpointStorage, workflow: Workflow, info: CheckpointInfo) -> list[Message]:
    """The input messages of a run. Checkpoints do not change, so recent ones are cached."""
    cache = _INPUT_CACHE.setdefault(storage, OrderedDict())
    if info.checkpoint_id in cache:
        cache.move_to_end(info.checkpoint_id)
        return cache[info.checkpoint_id]
    entry = await load_checkpoint(storage, info.checkpoint_id, workflow.declared_types)
    inputs = [delivery.data for delivery in entry.deliveries if delivery.source_id.startswith("internal:")]
    messages = with_run_ids([message for data in inputs for message in to_messages(data, "user")], f"{info.run_id}-in")
    if sum(len(message.text) for message in messages) <= MAX_CACHED_CHARACTERS:
        cache[info.checkpoint_id] = messages
        if len(cache) > MAX_CACHED_TURNS:
            cache.popitem(last=False)
    return messages


async def _beginnings(
    storage: StoreCheckpointStorage, workflow: Workflow, head: WorkflowCheckpoint
) -> list[CheckpointInfo]:
    """The ancestors of the head that runs begin with, oldest first, since the last clear."""
    infos = {info.checkpoint_id: info for info in await storage.list_checkpoint_infos(thread_id=head.thread_id)}
    beginnings: list[CheckpointInfo] = []
    at: str | None = head.checkpoint_id
    while at in infos:
        info = infos.pop(at)
        at = info.previous_checkpoint_id
        if info.run_id is None:
            if _is_cleared(await load_checkpoint(storage, info.checkpoint_id, workflow.declared_types)):
                break
        elif info.iteration_count == 0:
            beginnings.append(info)
    return beginnings[::-1]


async def _outputs(
    storage: StoreCheckpointStorage, workflow: Workflow, thread_id: str, runs: set[str | None]
) -> dict[str, list[Message]]:
    """The output messages of these runs, by run id."""
    messages: dict[str, list[Message]] = {}
    async for event in _read_outputs(storage, workflow.declared_types, thread_id):
        if event.run_id in runs:
            messages.setdefault(event.run_id or "", []).extend(output_messages(event))
    return messages


async def count_output_messages(
    storage: StoreCheckpointStorage, declared: DeclaredTypes | None, thread_id: str, before: WorkflowEvent
) -> int:
    """The output messages of an event's run before the event."""
    count = 0
    async for event in _read_outputs(storage, declared, thread_id):
        if before.seq is not None and (event.seq or 0) >= before.seq:
            break
        if event.run_id == before.run_id:
            count += len(output_messages(event))
    return count


async def _read_outputs(
    storage: StoreCheckpointStorage, declared: DeclaredTypes | None, thread_id: str
) -> AsyncIterator[WorkflowEvent]:
    count = 0
    async for event in read_events(storage, thread_id, None, declared):
        if event.type == "output":
            yield event
        count += 1
        if count % EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)  # lets other tasks run


def _is_cleared(checkpoint: WorkflowCheckpoint) -> bool:
    return not (checkpoint.state or checkpoint.executors or checkpoint.outputs or checkpoint.deliveries)


# ---------------------------------------------------------------- edits


def with_messages(head: WorkflowCheckpoint, agent_id: str, messages: Iterable[Message]) -> WorkflowCheckpoint:
    """The head with these messages as the agent's conversation."""
    memory = head.executors.get(agent_id) or ExecutorMemory()
    private = dict(memory.private or {})
    session = private.get("session")
    conversation = list(messages)
    if isinstance(session, AgentSession):
        earlier = session.messages[: private.get("began", 0)]
        private["session"] = AgentSession(
            session_id=session.session_id,
            messages=[*earlier, *conversation],
            service_session_id=session.service_session_id,
            state=session.state,
        )
    else:
        private["session"] = AgentSession(session_id=f"{head.thread_id}/{agent_id}", messages=conversation)
    private.pop("conversation", None)
    private.pop("cache", None)
    changed = msgspec.structs.replace(memory, private=private)
    return msgspec.structs.replace(head, executors={**head.executors, agent_id: changed})


def merge_messages(messages: Iterable[Message], added: Iterable[Message]) -> list[Message]:
    """Append messages; a message whose id exists replaces the old one."""
    after = with_ids(messages)
    places = {message.message_id: at for at, message in enumerate(after)}
    for message in added:
        if message.message_id in places:
            after[places[message.message_id]] = message
        else:
            places[message.message_id] = len(after)
            after.append(message)
    return after


def with_ids(messages: Iterable[Message]) -> list[Message]:
    """Give messages without an id the id of their position, so that it stays when earlier messages are removed."""
    return [
        message if message.message_id else msgspec.structs.replace(message, message_id=place_id(at))
        for at, message in enumerate(messages)
    ]


def find_message(messages: Iterable[Message], message_id: str) -> tuple[int, Message]:
    """Raises HttpProblem."""
    for at, message in enumerate(messages):
        if (message.message_id or place_id(at)) == message_id:
            return at, message
    raise HttpProblem(404, "message_not_found", f"This thread has no message {message_id!r}.", field="message_id")


def no_conversation(workflow: Workflow) -> HttpProblem:
    return HttpProblem(
        409,
        "no_conversation",
        f"{workflow.name!r} does not begin with an agent, so it has no conversation to change. "
        "Nothing was written. PATCH the state instead, or fork the thread.",
    )


LONGEST_NAME = 255
NAMING_SECONDS = 2.0
"""Time limit of the generator: the reply to a turn waits for the thread's name."""
PAUSE_SECONDS = 60.0
"""Pause after a failed generator call, so that turns do not wait for it."""

NameThreads = Callable[[Workflow, str, Sequence[Message]], Awaitable[str | None]]


def make_naming(path: str, generator: Any, storage: StoreCheckpointStorage) -> NameThreads:
    """A function that names new threads. A failure to name a thread changes nothing else.

    `generator`: an object or class with `generate_name(messages)`, or such a function. It receives the texts, oldest
    first. Raises InvalidConfig.
    """
    maker = generator() if isinstance(generator, type) else generator
    generate = getattr(maker, "generate_name", maker)
    if not callable(generate):
        raise invalid("thread_name_generator", f"{path!r} has no generate_name(messages) and is not callable.")

    next_attempt = 0.0

    async def name(workflow: Workflow, thread_id: str, messages: Sequence[Message]) -> str | None:
        nonlocal next_attempt
        if time.monotonic() < next_attempt:
            return None
        try:
            async with asyncio.timeout(NAMING_SECONDS):
                generated = generate([message.text for message in messages])
                generated = await generated if inspect.isawaitable(generated) else generated
            if not isinstance(generated, str) or not generated.strip():
                return None
            thread_name = generated.strip()[:LONGEST_NAME]
            await workflow.describe(thread_id, {"name": thread_name}, on_busy="enqueue", checkpoint_storage=storage)
        except Exception as error:  # noqa: BLE001  # user code: the turn itself succeeded
            logger.warning("naming thread %s failed: %s", thread_id, type(error).__name__)
            next_attempt = time.monotonic() + PAUSE_SECONDS
            return None
        return thread_name

    return name
