"""Which conversation a node's agent takes part in, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.agent_workflow.conversations.log import SessionEntry, SessionHead, messages_in
from perdure.agent_workflow.conversations.store import SessionStore
from perdure.agent_workflow.definition.config import ConversationConfig
from perdure.agent_workflow.state import SessionRef, delivery, plain
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.graph.context import WorkflowContext

_OF_AGENT_FRAMEWORK = "agent_framework"
"""In a session's state: where its adapter keeps a session of the agent's own kind."""


class ConversationMessages(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a turn adds to its conversation."""

    messages: list[Message] = []  # msgspec copies it
    state: dict[str, Any] = {}


def said_in(session: AgentSession, before: int) -> ConversationMessages:
    """Since it had this version. What only the node told its agent is for that turn: it is not part of the
    conversation.

    Nor is a conversation that somebody else keeps, a service or the framework of the agent: it cannot be gone back in,
    and knows nothing of what others say. With the next turn the agent is told all that was said.
    """
    new = [_stored(one) for one in session.messages[before:] if one.role != "system"]
    return ConversationMessages(new, {key: value for key, value in session.state.items() if key != _OF_AGENT_FRAMEWORK})


def said_by_all(turns: Iterable[ConversationMessages]) -> ConversationMessages | None:
    """The turns of a map, one after the other. Of what else an agent keeps, the last one's counts."""
    given = list(turns)
    messages = [message for one in given for message in one.messages]
    return msgspec.structs.replace(given[-1], messages=messages) if given else None


async def opened(conversations: Conversations | None, ref: SessionRef | None, node: str) -> AgentSession | None:
    """The conversation as it stood when the node was asked, if it is part of one. What a version has never changes, so
    this need not be recorded."""
    return None if conversations is None or ref is None else await conversations.load(ref, node)


async def kept(
    conversations: Conversations | None,
    ref: SessionRef | None,
    said: ConversationMessages | None,
    node: str,
    ctx: WorkflowContext[Any],
) -> SessionRef | None:
    """What was said is in the session store before the checkpoint refers to it."""
    if conversations is None or ref is None or said is None:
        return None

    async def keep() -> SessionRef:
        return await conversations.keep(ref, said, node)

    found: SessionRef = await ctx.step(keep, name="keep the conversation", key="conversation")
    return found


class Conversations:
    """As a workflow's conversation policy says."""

    def __init__(self, config: ConversationConfig, workflow_name: str, store: SessionStore) -> None:
        self._config = config
        self._workflow_name = workflow_name
        self._store = store
        self._root = config.root_thread_id

    # ------------------------------------------------------------ which one

    async def begin(self, execution_id: str) -> dict[str, SessionRef]:
        """What an execution goes on from, by thread: where the session is one that executions share, all that they
        have said so far. To be asked once, and recorded: later it may be more."""
        session_id = self._session_id(execution_id)
        found = {self._root: SessionRef(session_id, self._root)}
        if self._config.session_id is None:
            return found  # its own: what an earlier execution of this id said is not part of it
        by_thread: dict[str, list[str]] = {}
        for head in await self._store.heads(session_id):
            if head.version:
                by_thread.setdefault(head.thread_id, []).append(head.version)
        for thread_id, versions in by_thread.items():
            if thread_id == self._root or thread_id.startswith(f"{self._config.thread_prefix}-"):
                found[thread_id] = await self._all_of(session_id, thread_id, versions)
        return found

    async def _all_of(self, session_id: str, thread_id: str, versions: Sequence[str]) -> SessionRef:
        """Mostly the newest has all the others: only executions that ran at the same time are branches."""
        newest = await self._store.read(session_id, versions[-1])
        branches = [one for one in versions[:-1] if one not in newest]
        joined = SessionRef(session_id, thread_id)
        for version in (*branches, versions[-1]):
            joined = await self._joined(joined, version)
        return joined

    def ref_for(self, node: str, execution_id: str, known: Mapping[str, SessionRef]) -> SessionRef:
        """The conversation that a node's next turn is part of."""
        root = known.get(self._root) or SessionRef(self._session_id(execution_id), self._root)
        if self._config.mode == "shared":
            return root
        own = f"{self._config.thread_prefix}-{node}"
        begun = root.version if self._config.mode == "fork_per_agent" else ""
        return known.get(own) or SessionRef(root.session_id, own, begun)

    def _session_id(self, execution_id: str) -> str:
        return self._config.session_id or f"workflow-{self._workflow_name}-{execution_id}"

    # ------------------------------------------------------------ what was said in it

    async def load(self, ref: SessionRef, node: str) -> AgentSession:
        """The conversation up to there, with what the node's agent kept when it spoke last. Raises
        ConversationNotFound."""
        entries = await self._store.read(ref.session_id, ref.version)
        own = [one for one in entries.values() if self._is_of(node, one)]
        return AgentSession(
            session_id=f"{ref.session_id}/{ref.thread_id}",
            messages=messages_in(entries),
            state=own[-1].state if own else {},
        )

    def _is_of(self, node: str, entry: SessionEntry) -> bool:
        return bool(entry.messages) and (entry.workflow_name, entry.node_id) == (self._workflow_name, node)

    async def keep(self, ref: SessionRef, said: ConversationMessages, node: str) -> SessionRef:
        """Store what was said, and give the version that has it. The same again gives the same version."""
        if not said.messages:
            return ref
        entry = SessionEntry(
            thread_id=ref.thread_id,
            parent=ref.version,
            messages=tuple(said.messages),
            workflow_name=self._workflow_name,
            execution_id=delivery().thread_id,
            node_id=node,
            at=delivery().clock.now(),
            state=said.state,
        )
        version = await self._store.append(ref.session_id, entry)
        return SessionRef(ref.session_id, ref.thread_id, version, ref.version)

    async def heard(self, known: Mapping[str, SessionRef], new: SessionRef) -> dict[str, SessionRef]:
        """How far the conversations are with a turn that counts: what others said meanwhile in the same thread comes
        first."""
        found = {new.thread_id: new, **known}
        threads = [new.thread_id]
        if self._config.mode == "fork_per_agent":
            threads.append(self._root)  # for those who are asked for the first time later
        for thread_id in threads:
            before = found.get(thread_id) or SessionRef(new.session_id, thread_id)
            found[thread_id] = await self._with_turn(before, new)
        await self._advance(new.session_id, found, threads)
        return found

    async def _with_turn(self, known: SessionRef, new: SessionRef) -> SessionRef:
        """What is known, and then the turn that `new` ends with; repeated, where it followed something else."""
        version = new.version
        if version in ("", known.version):
            return SessionRef(known.session_id, known.thread_id, known.version)
        if new.parent == known.version:  # nobody else has spoken: nothing need be read
            return SessionRef(known.session_id, known.thread_id, version)
        turn = (await self._store.read(known.session_id, version))[version]
        if turn.parent == known.version:
            return SessionRef(known.session_id, known.thread_id, version)
        if not turn.messages or version in await self._store.read(known.session_id, known.version):
            return known
        return await self._repeated(known, (version,))

    async def _advance(self, session_id: str, found: Mapping[str, SessionRef], threads: Sequence[str]) -> None:
        """Also back, in threads where this execution had come further before it was rewound."""
        own = delivery().thread_id
        moved = {thread_id: found[thread_id].version for thread_id in threads}
        for head in await self._store.heads(session_id):
            if head.execution_id == own and head.thread_id not in moved:
                ref = found.get(head.thread_id)
                moved[head.thread_id] = "" if ref is None else ref.version
        for thread_id, version in moved.items():
            await self._store.advance(session_id, SessionHead(thread_id=thread_id, execution_id=own, version=version))

    async def _joined(self, known: SessionRef, version: str) -> SessionRef:
        """Both, and nothing twice: what only `version` has comes after what is known."""
        if not known.version:
            return SessionRef(known.session_id, known.thread_id, version)
        before = _spoken(await self._store.read(known.session_id, known.version))
        after = _spoken(await self._store.read(known.session_id, version))
        missing = set(after) - set(before)
        return await self._repeated(known, [one for one in after if one in missing]) if missing else known

    async def _repeated(self, known: SessionRef, versions: Sequence[str]) -> SessionRef:
        entry = SessionEntry(
            thread_id=known.thread_id,
            parent=known.version,
            repeats=tuple(versions),
            workflow_name=self._workflow_name,
            execution_id=delivery().thread_id,
            at=delivery().clock.now(),
        )
        return SessionRef(known.session_id, known.thread_id, await self._store.append(known.session_id, entry))


def _spoken(entries: Mapping[str, SessionEntry]) -> list[str]:
    return [version for version, entry in entries.items() if entry.messages]


def _stored(message: Message) -> Message:
    """What a tool gave, as data: the model was told no more than that, and whoever reads it may not know its type."""
    contents = [
        msgspec.structs.replace(one, result=_plain(one)) if one.type == "function_result" else one
        for one in message.contents
    ]
    return msgspec.structs.replace(message, contents=tuple(contents))


def _plain(content: Content) -> Any:
    try:
        return plain(content.result)
    except TypeError:
        return content.result
