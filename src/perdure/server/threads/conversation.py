"""What was said in a thread: the session of its agent or, of any other workflow, what came in and what came out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
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
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.records import CheckpointInfo, ExecutorMemory
from perdure.server.agentflow.messages import place_id
from perdure.server.problems import HttpProblem
from perdure.server.threads.to_json import plain
from perdure.workflows.workflow import Workflow

# ---------------------------------------------------------------- speaking


class SpeakingExecutor(AgentExecutor):
    """Gives messages that have no id one of their own. It follows from the thread and the place in the conversation, so
    that a turn which is done again after a crash gives the same."""

    async def respond(self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> AgentResponse:
        response = await super().respond(messages, ctx)
        session = ctx.private["session"]
        ids, taken = {}, set[str]()
        for at, message in enumerate(session.messages):
            if message.message_id is None or message.message_id in taken:
                named = msgspec.structs.replace(message, message_id=_free_id(session.session_id, at, taken))
                ids[id(message)] = session.messages[at] = named
            taken.add(session.messages[at].message_id or "")
        if not ids:
            return response
        said = tuple(ids.get(id(message), message) for message in response.messages)
        if any(message.message_id is None for message in said):  # the session holds copies: the last are the same
            said = tuple(session.messages[len(session.messages) - len(said) :])
        return msgspec.structs.replace(response, messages=said)


def _free_id(session_id: str, at: int, taken: set[str]) -> str:
    """A message that was removed before it may have left its place, and its id, to another."""
    while (made := blake2b(f"{session_id}/{at}".encode(), digest_size=12).hexdigest()) in taken:
        at += 1
    return made


AT_ONCE = 100
"""Events of a log that are read before others get a turn."""
MOST_KEPT, LARGEST_KEPT = 5000, 2000
"""Turns whose input is remembered, and how many characters at most."""
_READ: WeakKeyDictionary[StoreCheckpointStorage, OrderedDict[str, list[Message]]] = WeakKeyDictionary()
SHOWN_TURNS = 100
"""Of a workflow without an agent, those that a state shows."""


def speaker(workflow: Workflow) -> str | None:
    """The agent whose session is the conversation: the one that messages come to first."""
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
    """All that was said, oldest first. Of a workflow without an agent, whose history has to be read for it, at least
    the `first` messages, or those of the `last` turns."""
    agent_id = speaker(workflow)
    if agent_id is not None:
        return session_messages(head, agent_id)
    return await _from_history(storage, workflow, head, first, last)


def session_messages(head: WorkflowCheckpoint, agent_id: str) -> list[Message]:
    memory = head.executors.get(agent_id)
    private: Mapping[str, Any] = {} if memory is None else memory.private or {}
    session = private.get("session")
    if "conversation" in private:
        said = list(private["conversation"])
    else:
        said = list(session.messages[private.get("began", 0) :]) if isinstance(session, AgentSession) else []
    return [*said, *private.get("cache", ())]


async def _from_history(
    storage: StoreCheckpointStorage, workflow: Workflow, head: WorkflowCheckpoint, first: int | None, last: int | None
) -> list[Message]:
    """Inputs are what was due in the checkpoints that runs begin with, as far back as the thread was cleared; outputs
    are in the log."""
    begun = await _beginnings(storage, workflow, head)
    chosen = begun[:first] if last is None else begun[-last:]
    outputs = await _outputs(storage, workflow, head.thread_id, {info.run_id for info in chosen})
    said: list[Message] = []
    for info in chosen:
        said += await _heard(storage, workflow, info)
        said += with_run_ids(outputs.pop(info.run_id or "", []), f"{info.run_id}-out")
    return with_ids(said)


async def _heard(storage: StoreCheckpointStorage, workflow: Workflow, info: CheckpointInfo) -> list[Message]:
    """What came in with a run. A checkpoint does not change, so what was read lately is not read again."""
    known = _READ.setdefault(storage, OrderedDict())
    if info.checkpoint_id in known:
        known.move_to_end(info.checkpoint_id)
        return known[info.checkpoint_id]
    entry = await load_checkpoint(storage, info.checkpoint_id, workflow.declared_types)
    came_in = [one.data for one in entry.deliveries if one.source_id.startswith("internal:")]
    heard = with_run_ids([one for data in came_in for one in as_said(data, "user")], f"{info.run_id}-in")
    if sum(len(one.text) for one in heard) <= LARGEST_KEPT:
        known[info.checkpoint_id] = heard
        if len(known) > MOST_KEPT:
            known.popitem(last=False)
    return heard


async def _beginnings(
    storage: StoreCheckpointStorage, workflow: Workflow, head: WorkflowCheckpoint
) -> list[CheckpointInfo]:
    """The checkpoints of the head's own line that runs begin with, oldest first, since the thread was cleared."""
    line = {info.checkpoint_id: info for info in await storage.list_checkpoint_infos(thread_id=head.thread_id)}
    begun: list[CheckpointInfo] = []
    at: str | None = head.checkpoint_id
    while at in line:
        info = line.pop(at)
        at = info.previous_checkpoint_id
        if info.run_id is None:
            if _is_cleared(await load_checkpoint(storage, info.checkpoint_id, workflow.declared_types)):
                break
        elif info.iteration_count == 0:
            begun.append(info)
    return begun[::-1]


async def _outputs(
    storage: StoreCheckpointStorage, workflow: Workflow, thread_id: str, runs: set[str | None]
) -> dict[str, list[Message]]:
    """What these runs gave."""
    found: dict[str, list[Message]] = {}
    count = 0
    async for event in read_events(storage, thread_id, None, workflow.declared_types):
        if event.type == "output" and event.run_id in runs:
            found.setdefault(event.run_id or "", []).extend(said_by(event))
        count += 1
        if count % AT_ONCE == 0:
            await asyncio.sleep(0)  # others are served meanwhile
    return found


def _is_cleared(checkpoint: WorkflowCheckpoint) -> bool:
    return not (checkpoint.state or checkpoint.executors or checkpoint.outputs or checkpoint.deliveries)


def said_by(event: WorkflowEvent) -> list[Message]:
    """An output as messages of an assistant."""
    return as_said(event.data, "assistant", event.executor_id)


def as_said(data: Any, role: str, author: str | None = None) -> list[Message]:
    if isinstance(data, AgentResponse):
        return list(data.messages)
    if isinstance(data, Message):
        return [data]
    if isinstance(data, list) and data and all(isinstance(one, Message) for one in data):
        return list(data)
    text = data if isinstance(data, str) else msgspec.json.encode(plain(data)).decode()
    return [Message(role, text, author)]


# ---------------------------------------------------------------- changed by hand


def with_messages(head: WorkflowCheckpoint, agent_id: str, messages: Iterable[Message]) -> WorkflowCheckpoint:
    """The head in which this is what was said to and by the agent."""
    memory = head.executors.get(agent_id) or ExecutorMemory()
    private = dict(memory.private or {})
    session = private.get("session")
    said = list(messages)
    if isinstance(session, AgentSession):
        kept = session.messages[: private.get("began", 0)]
        private["session"] = AgentSession(
            session_id=session.session_id,
            messages=[*kept, *said],
            service_session_id=session.service_session_id,
            state=session.state,
        )
    else:
        private["session"] = AgentSession(session_id=f"{head.thread_id}/{agent_id}", messages=said)
    private.pop("conversation", None)
    private.pop("cache", None)
    changed = msgspec.structs.replace(memory, private=private)
    return msgspec.structs.replace(head, executors={**head.executors, agent_id: changed})


def with_run_ids(messages: Iterable[Message], run: str, first: int = 0) -> list[Message]:
    """Of a workflow without an agent nothing keeps messages: each is known by the run that it came in or out with."""
    return [
        message if message.message_id else msgspec.structs.replace(message, message_id=f"{run}{at}")
        for at, message in enumerate(messages, first)
    ]


def joined(said: Iterable[Message], added: Iterable[Message]) -> list[Message]:
    """One whose id is there already takes the place of that one."""
    after = with_ids(said)
    places = {message.message_id: at for at, message in enumerate(after)}
    for message in added:
        if message.message_id in places:
            after[places[message.message_id]] = message
        else:
            places[message.message_id] = len(after)
            after.append(message)
    return after


def with_ids(messages: Iterable[Message]) -> list[Message]:
    """Those without an id keep the one that their place gave them, whatever is removed before them."""
    return [
        message if message.message_id else msgspec.structs.replace(message, message_id=place_id(at))
        for at, message in enumerate(messages)
    ]


def find_message(messages: Iterable[Message], message_id: str) -> tuple[int, Message]:
    """Raises HttpProblem."""
    for at, message in enumerate(messages):
        if (message.message_id or place_id(at)) == message_id:
            return at, message
    raise HttpProblem(
        404, "message_not_found", f"There is no message {message_id!r} in this thread.", field="message_id"
    )


def no_conversation(workflow: Workflow) -> HttpProblem:
    return HttpProblem(
        409,
        "no_conversation",
        f"{workflow.name!r} does not begin with an agent, so it keeps no conversation that could be changed. "
        "Nothing was written. PATCH the state instead, or fork the thread.",
    )
