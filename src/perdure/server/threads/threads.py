"""The threads of one user: find, list, fork, rewind and delete them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.checkpoints.any_storage import load_checkpoint
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import CheckpointNotFound
from perdure.graph.coercion import coerce
from perdure.records import CheckpointInfo, StoredCheckpoint, ThreadInfo
from perdure.server.auth.principal import Space, check_id
from perdure.server.problems import HttpProblem, not_found, unprocessable
from perdure.server.threads.as_json import messages_to_client, request_to_json, thread_to_json, to_json
from perdure.server.threads.conversation import SHOWN_TURNS, conversation, state_to_client
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.server.service import Service


MakeView = Callable[[ThreadInfo, Workflow, WorkflowCheckpoint], Awaitable[Any]]
MAX_VIEWS_BYTES, ENTRY_BYTES = 16 * 1024 * 1024, 500
"""All views together, each with its entry."""
MAX_VIEW_SECONDS = 10.0
"""Pruning does not move a thread, so a view of its history is made again after this time."""


class Views(msgspec.Struct, eq=False):
    """Threads as JSON, as clients last read them: most read a thread again before it has changed."""

    _views: OrderedDict[Hashable, tuple[float, bytes]] = msgspec.field(default_factory=OrderedDict)
    _bytes: int = 0

    def get(self, key: Hashable) -> bytes | None:
        made_at, view = self._views.get(key, (0.0, None))
        return view if time.monotonic() - made_at < MAX_VIEW_SECONDS else None

    def put(self, key: Hashable, view: bytes) -> None:
        if key in self._views:
            self._bytes -= len(self._views.pop(key)[1]) + ENTRY_BYTES
        self._views[key] = (time.monotonic(), view)
        self._bytes += len(view) + ENTRY_BYTES
        while self._bytes > MAX_VIEWS_BYTES:
            self._bytes -= len(self._views.popitem(last=False)[1][1]) + ENTRY_BYTES


class Threads(msgspec.Struct, frozen=True):
    """The threads of one user. Every id passes through the user's space, so other users' threads are unreachable."""

    service: Service
    space: Space

    @property
    def storage(self) -> StoreCheckpointStorage:
        return self.service.storage

    async def find(self, thread_id: str) -> ThreadInfo:
        """Raises HttpProblem if this user has no such thread."""
        info = await self.look_up(self.space.stored_id(thread_id))
        if info is None:
            raise not_found(thread_id)
        return info

    async def look_up(self, stored_id: str) -> ThreadInfo | None:
        async with self.storage.access("find a thread"):
            infos = await self.storage.store.threads(thread_id=stored_id, limit=1)
        return infos[0] if infos else None

    async def workflow(self, thread_id: str) -> tuple[ThreadInfo, Workflow]:
        info = await self.find(thread_id)
        return info, self.service.workflow_of(info)

    async def head(self, thread_id: str) -> tuple[ThreadInfo, Workflow, WorkflowCheckpoint]:
        return await self._load_head(*await self.workflow(thread_id))

    async def _load_head(self, info: ThreadInfo, workflow: Workflow) -> tuple[ThreadInfo, Workflow, WorkflowCheckpoint]:
        """With the thread as it is now, if the head was pruned meanwhile. Raises HttpProblem."""
        thread_id = self.space.public_id(info.thread_id)
        if info.checkpoint_id is None:
            raise not_found(thread_id)
        try:
            return info, workflow, await load_checkpoint(self.storage, info.checkpoint_id, workflow.declared_types)
        except CheckpointNotFound:
            return await self.head(thread_id)

    # ------------------------------------------------------------ views

    async def state(self, thread_id: str) -> dict[str, Any]:
        """The state in AgentFlow's format."""
        return await self._state_of(*await self.head(thread_id))

    async def state_view(self, thread_id: str) -> msgspec.Raw:
        """`state` as JSON."""
        return await self._view(thread_id, ("state",), self._state_of)

    async def messages_view(self, thread_id: str, search: str | None, offset: int, limit: int) -> msgspec.Raw:
        """One page of the messages in AgentFlow's format as JSON, oldest first."""

        async def make(info: ThreadInfo, workflow: Workflow, head: WorkflowCheckpoint) -> list[dict[str, Any]]:
            first = None if search else offset + limit
            messages = messages_to_client(await conversation(self.storage, workflow, head, first=first))
            if search:
                messages = [message for message in messages if _mentions(search, *message["content"], names=["text"])]
            return messages[offset : offset + limit]

        return await self._view(thread_id, ("messages", search, offset, limit), make)

    async def _state_of(self, info: ThreadInfo, workflow: Workflow, head: WorkflowCheckpoint) -> dict[str, Any]:
        messages = await conversation(self.storage, workflow, head, last=SHOWN_TURNS)
        return state_to_client(info, head, messages, self.space)

    async def _view(self, thread_id: str, kind: tuple[object, ...], make: MakeView) -> msgspec.Raw:
        """A view of the head, made once for as long as the thread does not change."""
        info, workflow = await self.workflow(thread_id)
        key = (info.thread_id, info.checkpoint_id, info.number, info.status, *kind)
        view = self.service.views.get(key)
        if view is None:
            view = msgspec.json.encode(await make(*await self._load_head(info, workflow)))
            self.service.views.put(key, view)
        return msgspec.Raw(view)

    async def list_page(self, search: str | None, offset: int, limit: int) -> list[dict[str, Any]]:
        """One page of threads as JSON, the latest updated first."""
        count = None if search else offset + limit
        infos = await self.storage.list_threads(prefix=self.space.prefix or None, limit=count)
        matches: list[dict[str, Any]] = []
        for info in reversed(infos):
            if len(matches) >= offset + limit:
                break
            body = thread_to_json(info, self.space, await self.about(info))
            if not search or _mentions(search, body, names=["thread_id", "thread_name", "workflow_name"]):
                matches.append(body)
        return matches[offset : offset + limit]

    async def about(self, info: ThreadInfo) -> Mapping[str, Any]:
        """The thread's name and metadata."""
        if info.checkpoint_id is None:
            return {}
        key = (info.thread_id, info.checkpoint_id, info.number, "about")
        view = self.service.views.get(key)
        if view is None:
            about: Mapping[str, Any] = {}
            stored = await self.find_checkpoint(info.checkpoint_id)
            # Most threads have no name and no metadata; then the head is not assembled.
            if stored is not None and b'"metadata"' in stored.root:
                try:
                    about = (await self.storage.load(info.checkpoint_id)).metadata.get("about", {})
                except CheckpointNotFound:  # pruned
                    pass
            view = msgspec.json.encode(to_json(about))
            self.service.views.put(key, view)
        return msgspec.json.decode(view, type=dict[str, Any])

    async def find_workflow(self, thread_id: str) -> tuple[ThreadInfo, Workflow | None]:
        """The thread and its workflow; None if the server does not have it. Reading works without the workflow."""
        info = await self.find(thread_id)
        return info, self.service.registry.by_workflow_name(info.workflow_name)

    async def checkpoint_info(self, thread_id: str, checkpoint_id: str | None) -> CheckpointInfo:
        """The info of a checkpoint of this thread. Raises HttpProblem for any other checkpoint, and for a thread
        without a head (None)."""
        if checkpoint_id is None:
            raise not_found(thread_id)
        check_id("checkpoint_id", checkpoint_id)
        stored = await self.find_checkpoint(checkpoint_id)
        if stored is None or stored.info.thread_id != self.space.stored_id(thread_id):
            sentence = f"Thread {thread_id!r} has no checkpoint {checkpoint_id!r}; it may have been pruned."
            raise HttpProblem(404, "checkpoint_not_found", sentence, field="checkpoint_id")
        return stored.info

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        async with self.storage.access("find a checkpoint"):
            return await self.storage.store.find_checkpoint(checkpoint_id)

    # ------------------------------------------------------------ requests

    async def requests(self, thread_id: str | None, limit: int) -> list[dict[str, Any]]:
        """Pending requests as JSON, the oldest first."""
        stored_id = None if thread_id is None else (await self.find(thread_id)).thread_id
        pending = await self.storage.pending_requests(
            thread_id=stored_id, prefix=self.space.prefix or None, limit=limit
        )
        events: dict[str, Mapping[str, Any]] = {}
        requests = []
        for request in pending:
            if request.thread_id not in events:
                events[request.thread_id] = await self.load_requests(self.space.public_id(request.thread_id))
            event = events[request.thread_id].get(request.request_id)
            if event is not None:  # answered since it was listed
                body = request_to_json(event, self.space)
                where = {"thread_id": self.space.public_id(request.thread_id), "workflow_name": request.workflow_name}
                requests.append({**where, **body, "asked_at": request.asked_at.isoformat()})
        return requests

    async def load_requests(self, thread_id: str) -> Mapping[str, Any]:
        """The pending requests of a thread by id; empty for an unknown thread."""
        try:
            info, workflow = await self.find_workflow(thread_id)
        except HttpProblem:  # deleted since it was listed, or another user's
            return {}
        if workflow is not None:
            head = await workflow.head(info.thread_id, checkpoint_storage=self.storage)
        else:
            head = None if info.checkpoint_id is None else await self.storage.load(info.checkpoint_id)
        return {} if head is None else head.pending_request_info_events

    async def answers_for(self, thread_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert answers to the types that the requests expect. Raises HttpProblem or UnknownRequest."""
        _, _, head = await self.head(thread_id)
        answers = {}
        for request_id, value in values.items():
            event = head.pending_request_info_events.get(request_id)
            try:
                answers[request_id] = value if event is None else coerce(value, event.response_type)
            except (ValueError, TypeError) as error:
                sentence = f"The answer to request {request_id!r} does not fit: {error}. The request is still pending."
                raise unprocessable("value", sentence, "answer_rejected") from error
        return answers


def _mentions(search: str, *parts: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether one of these fields of a part holds the text."""
    return any(search.casefold() in str(part.get(name) or "").casefold() for part in parts for name in names)
