"""The conversation of a thread: its agent's session or, for other workflows, the inputs and outputs; its state in
AgentFlow's format; and thread names.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.executor import AgentExecutor
from perdure.checkpoints.any_storage import load_checkpoint, read_events
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codec import DeclaredTypes
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.log import get_logger
from perdure.records import CheckpointInfo, ExecutorMemory, ThreadInfo
from perdure.server.auth.principal import Space
from perdure.server.config.schema import invalid
from perdure.server.problems import HttpProblem, unprocessable
from perdure.server.threads.as_json import messages_to_client, output_messages, to_json, to_messages, with_ids
from perdure.workflows.workflow import Workflow

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
    # Inputs are the deliveries of the checkpoints that runs begin with; outputs are in the log.
    beginnings = await _beginnings(storage, workflow, head)
    selected = beginnings[:first] if last is None else beginnings[-last:]
    outputs: dict[str | None, list[Message]] = {info.run_id: [] for info in selected}
    async for event in read_log(storage, head.thread_id, workflow.declared_types):
        if event.type == "output" and event.run_id in outputs:
            outputs[event.run_id] += output_messages(event)
    messages: list[Message] = []
    for info in selected:
        messages += await _load_input(storage, workflow, info)
        messages += with_ids(outputs.pop(info.run_id, []), f"{info.run_id}-out")
    return with_ids(messages)


def session_messages(head: WorkflowCheckpoint, agent_id: str) -> list[Message]:
    memory = head.executors.get(agent_id)
    private: Mapping[str, Any] = {} if memory is None else memory.private or {}
    session = private.get("session")
    if "conversation" in private:
        messages = list(private["conversation"])
    else:
        messages = list(session.messages[private.get("began", 0) :]) if isinstance(session, AgentSession) else []
    return [*messages, *private.get("cache", ())]


async def _load_input(storage: StoreCheckpointStorage, workflow: Workflow, info: CheckpointInfo) -> list[Message]:
    """The input messages of a run. Checkpoints do not change, so recent ones are cached."""
    cache = _INPUT_CACHE.setdefault(storage, OrderedDict())
    if info.checkpoint_id in cache:
        cache.move_to_end(info.checkpoint_id)
        return cache[info.checkpoint_id]
    entry = await load_checkpoint(storage, info.checkpoint_id, workflow.declared_types)
    inputs = [delivery.data for delivery in entry.deliveries if delivery.source_id.startswith("internal:")]
    messages = with_ids([message for data in inputs for message in to_messages(data, "user")], f"{info.run_id}-in")
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
    while (info := infos.pop(at or "", None)) is not None:
        at = info.previous_checkpoint_id
        if info.run_id is None:
            edited = await load_checkpoint(storage, info.checkpoint_id, workflow.declared_types)
            if not (edited.state or edited.executors or edited.outputs or edited.deliveries):  # cleared
                break
        elif info.iteration_count == 0:
            beginnings.append(info)
    return beginnings[::-1]


async def count_output_messages(
    storage: StoreCheckpointStorage, declared: DeclaredTypes | None, thread_id: str, before: WorkflowEvent
) -> int:
    """The output messages of an event's run before the event."""
    count = 0
    async for event in read_log(storage, thread_id, declared):
        if before.seq is not None and (event.seq or 0) >= before.seq:
            break
        if event.type == "output" and event.run_id == before.run_id:
            count += len(output_messages(event))
    return count


async def read_log(
    storage: StoreCheckpointStorage, thread_id: str, declared: DeclaredTypes | None
) -> AsyncIterator[WorkflowEvent]:
    async for event in read_events(storage, thread_id, None, declared):
        yield event
        if (event.seq or 0) % EVENTS_PER_TURN == 0:
            await asyncio.sleep(0)  # lets other tasks run


# ---------------------------------------------------------------- edits


def with_messages(head: WorkflowCheckpoint, agent_id: str, messages: Iterable[Message]) -> WorkflowCheckpoint:
    """The head with these messages as the agent's conversation."""
    memory = head.executors.get(agent_id) or ExecutorMemory()
    private = dict(memory.private or {})
    session = private.get("session")
    if not isinstance(session, AgentSession):
        session = AgentSession(session_id=f"{head.thread_id}/{agent_id}")
    earlier = session.messages[: private.get("began", 0)]
    private["session"] = msgspec.structs.replace(session, messages=[*earlier, *messages])
    private.pop("conversation", None)
    private.pop("cache", None)
    changed = msgspec.structs.replace(memory, private=private)
    return msgspec.structs.replace(head, executors={**head.executors, agent_id: changed})


def no_conversation(workflow: Workflow) -> HttpProblem:
    sentence = f"{workflow.name!r} does not begin with an agent, so it has no conversation to change."
    advice = "Nothing was written. PATCH the state instead, or fork the thread."
    return HttpProblem(409, "no_conversation", f"{sentence} {advice}")


# ---------------------------------------------------------------- the state


OWN_KEYS = frozenset({"context", "context_summary", "execution_meta"})
"""Keys that are not part of the shared state."""

_STATUSES = {
    WorkflowRunState.IDLE.value: "completed",
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value: "interrupted_before",
    WorkflowRunState.FAILED.value: "error",
    WorkflowRunState.CANCELLED.value: "interrupted_before",
}


def state_to_client(info: ThreadInfo, head: WorkflowCheckpoint, context: list[Message], space: Space) -> dict[str, Any]:
    waiting = next(iter(head.pending_request_info_events.values()), None)
    due = next(iter(head.deliveries), None)
    last = head.outputs[-1].executor_id if head.outputs else None
    execution_meta = {
        "current_node": due.target_id if due is not None else (waiting and waiting.source_executor_id) or last,
        "step": head.iteration_count,
        "status": _STATUSES.get(info.status, "running"),
        "interrupted_node": waiting and waiting.source_executor_id,
        "interrupt_reason": waiting and "input_required",
        "interrupt_data": waiting and {"request_id": waiting.request_id, "value": to_json(waiting.data)},
        "thread_id": space.public_id(info.thread_id),
        "stop_current_execution": "stopped" if info.status == WorkflowRunState.CANCELLED.value else "none",
        "internal_data": {},
    }
    return {
        **to_json({key: value for key, value in head.state.items() if key not in OWN_KEYS}),
        "context": messages_to_client(context),
        "context_summary": to_json(head.state.get("context_summary")),
        "execution_meta": execution_meta,
    }


def merge_state(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge dicts recursively; None is ignored; any other value replaces the stored one."""
    after = dict(stored)
    for key, value in changes.items():
        if value is None:
            continue
        before = after.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        after[key] = merge_state(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return after


def update_state(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The state with these changes. Raises HttpProblem for a value of another type."""
    after = merge_state(
        before, {key: value for key, value in changes.items() if key not in ("context", "execution_meta")}
    )
    for key, value in after.items():
        stored = before.get(key)
        is_same_type = type(stored) is type(value) or (type(stored) is float and type(value) is int)
        if stored is not None and not is_same_type:
            kinds = f"{type(stored).__name__}, not {type(value).__name__}"
            raise unprocessable(f"state.{key}", f"state.{key} holds {kinds}. Nothing was written.", "wrong_state_type")
    return after


# ---------------------------------------------------------------- names


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
