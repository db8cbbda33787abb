"""The conversation policy of a workflow: the thread of each node's agent, and its version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.agent_workflow.definition import ConversationConfig
from perdure.agent_workflow.sessions import SessionEntry, SessionHead, SessionStore, messages_in
from perdure.agent_workflow.state import SessionRef, delivery, to_plain
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import FRAMEWORK_STATE, AgentSession, Message


class ConversationMessages(msgspec.Struct, frozen=True, omit_defaults=True):
    """The messages that a turn appends to its conversation."""

    messages: list[Message] = []  # msgspec copies it
    state: dict[str, Any] = {}


def new_messages(session: AgentSession, before: int) -> ConversationMessages:
    """The messages after this version. System messages of the node belong to its turn only.

    A conversation that a service or the agent's framework stores is not included: it cannot be rewound, and does not
    have the messages of other nodes. The next turn sends the whole conversation.
    """
    new = [
        msgspec.structs.replace(message, contents=tuple(map(_with_plain_result, message.contents)))
        for message in session.messages[before:]
        if message.role != "system"
    ]
    return ConversationMessages(new, {key: value for key, value in session.state.items() if key != FRAMEWORK_STATE})


def merge_messages(turns: Iterable[ConversationMessages]) -> ConversationMessages | None:
    """The messages of the turns of a map, in order, with the state of the last turn."""
    items = list(turns)
    messages = [message for item in items for message in item.messages]
    return msgspec.structs.replace(items[-1], messages=messages) if items else None


class Conversations:
    """Applies a workflow's conversation policy."""

    def __init__(self, config: ConversationConfig, workflow_name: str, store: SessionStore) -> None:
        self._config = config
        self._workflow_name = workflow_name
        self._store = store
        self._root = config.root_thread_id

    async def begin(self, execution_id: str) -> dict[str, SessionRef]:
        """The versions that an execution starts from, by thread. In a session that executions share, these are the
        newest versions. The caller records them: later calls may return newer ones."""
        session_id = self._session_id(execution_id)
        refs = {self._root: SessionRef(session_id, self._root)}
        if self._config.session_id is None:
            return refs  # an own session: messages of an earlier execution of this id are not part of it
        by_thread: dict[str, list[str]] = {}
        for head in await self._store.heads(session_id):
            if head.version:
                by_thread.setdefault(head.thread_id, []).append(head.version)
        for thread_id, versions in by_thread.items():
            if thread_id == self._root or thread_id.startswith(f"{self._config.thread_prefix}-"):
                refs[thread_id] = await self._merge_branches(session_id, thread_id, versions)
        return refs

    async def _merge_branches(self, session_id: str, thread_id: str, versions: Sequence[str]) -> SessionRef:
        """All versions without duplicates. Usually the newest contains all others: only concurrent executions make
        branches. Entries that only a later one has come last."""
        newest = await self._store.read(session_id, versions[-1])
        first, *others = [*(version for version in versions[:-1] if version not in newest), versions[-1]]
        merged = SessionRef(session_id, thread_id, first)
        for version in others:
            before = await self._store.read(session_id, merged.version)
            after = await self._store.read(session_id, version)
            missing = tuple(name for name, entry in after.items() if entry.messages and name not in before)
            if missing:
                merged = await self._append(merged, repeats=missing)
        return merged

    def ref_for(self, node: str, execution_id: str, refs: Mapping[str, SessionRef]) -> SessionRef:
        """The conversation of a node's next turn."""
        root = refs.get(self._root) or SessionRef(self._session_id(execution_id), self._root)
        if self._config.mode == "shared":
            return root
        own = f"{self._config.thread_prefix}-{node}"
        start = root.version if self._config.mode == "fork_per_agent" else ""
        return refs.get(own) or SessionRef(root.session_id, own, start)

    def _session_id(self, execution_id: str) -> str:
        return self._config.session_id or f"workflow-{self._workflow_name}-{execution_id}"

    async def load(self, ref: SessionRef, node: str) -> AgentSession:
        """The conversation up to this version, with the state that the node's agent had in its last turn. Raises
        ConversationNotFound."""
        entries = await self._store.read(ref.session_id, ref.version)
        name = self._workflow_name, node
        own = [entry for entry in entries.values() if entry.messages and (entry.workflow_name, entry.node_id) == name]
        return AgentSession(
            session_id=f"{ref.session_id}/{ref.thread_id}",
            messages=messages_in(entries),
            state=own[-1].state if own else {},
        )

    async def save(self, ref: SessionRef, new: ConversationMessages, node: str) -> SessionRef:
        """Append the messages, and return their version. Equal messages give the same version."""
        if not new.messages:
            return ref
        appended = await self._append(ref, messages=tuple(new.messages), node_id=node, state=new.state)
        return msgspec.structs.replace(appended, parent=ref.version)

    async def merge(self, refs: Mapping[str, SessionRef], new: SessionRef) -> dict[str, SessionRef]:
        """The versions with a settled turn. Messages that other nodes recorded meanwhile in the same thread come
        first."""
        merged = {new.thread_id: new, **refs}
        threads = [new.thread_id]
        if self._config.mode == "fork_per_agent":
            threads.append(self._root)  # later first turns of other agents fork from it
        for thread_id in threads:
            before = merged.get(thread_id) or SessionRef(new.session_id, thread_id)
            merged[thread_id] = await self._with_turn(before, new)
        await self._advance(new.session_id, merged, threads)
        return merged

    async def _with_turn(self, before: SessionRef, new: SessionRef) -> SessionRef:
        """The version `before`, followed by the turn of `new`; the turn is repeated if it followed another version."""
        version = new.version
        if version in ("", before.version):
            return SessionRef(before.session_id, before.thread_id, before.version)
        if new.parent != before.version:  # else no other turn was recorded: no read is needed
            turn = (await self._store.read(before.session_id, version))[version]
            if turn.parent != before.version:
                if not turn.messages or version in await self._store.read(before.session_id, before.version):
                    return before
                return await self._append(before, repeats=(version,))
        return SessionRef(before.session_id, before.thread_id, version)

    async def _advance(self, session_id: str, refs: Mapping[str, SessionRef], threads: Sequence[str]) -> None:
        """Set the heads of this execution, also backwards in threads that a rewind shortened."""
        execution_id = delivery().thread_id
        versions = {thread_id: refs[thread_id].version for thread_id in threads}
        for head in await self._store.heads(session_id):
            if head.execution_id == execution_id and head.thread_id not in versions:
                ref = refs.get(head.thread_id)
                versions[head.thread_id] = "" if ref is None else ref.version
        for thread_id, version in versions.items():
            head = SessionHead(thread_id=thread_id, execution_id=execution_id, version=version)
            await self._store.advance(session_id, head)

    async def _append(self, ref: SessionRef, **content: Any) -> SessionRef:
        """The conversation with an entry of this content."""
        entry = SessionEntry(
            thread_id=ref.thread_id,
            parent=ref.version,
            workflow_name=self._workflow_name,
            execution_id=delivery().thread_id,
            at=delivery().clock.now(),
            **content,
        )
        return SessionRef(ref.session_id, ref.thread_id, await self._store.append(ref.session_id, entry))


def _with_plain_result(content: Content) -> Content:
    """The result of a tool as plain data: the model got no more, and a reader may not know its type."""
    if content.type != "function_result":
        return content
    with suppress(TypeError):
        return msgspec.structs.replace(content, result=to_plain(content.result))
    return content
