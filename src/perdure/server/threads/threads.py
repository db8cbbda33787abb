"""Threads as one user sees them: found, listed, moved along their history, and removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perdure.checkpoints.any_storage import load_checkpoint
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.errors import CheckpointNotFound
from perdure.names import new_thread_id
from perdure.records import CheckpointInfo, StoredCheckpoint, ThreadInfo
from perdure.server.agentflow.states import OWN_KEYS
from perdure.server.problems import HttpProblem, not_found
from perdure.server.threads.tenancy import Space, check_id
from perdure.server.threads.to_json import plain, plain_checkpoint, plain_info, plain_request, plain_thread
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.server.app.service import Service


class Threads:
    """What one user may see and do. Every id that comes in goes through the user's space, so there is no other."""

    def __init__(self, service: Service, space: Space) -> None:
        self.service = service
        self.space = space
        self.storage = service.storage

    # ------------------------------------------------------------ finding

    async def find(self, thread_id: str) -> ThreadInfo:
        """Raises HttpProblem if this user has no such thread."""
        found = await self.look_up(self.space.inside(thread_id))
        if found is None:
            raise not_found(thread_id)
        return found

    async def look_up(self, stored_id: str) -> ThreadInfo | None:
        async with self.storage.access("find a thread"):
            found = await self.storage.store.threads(thread_id=stored_id, limit=1)
        return found[0] if found else None

    async def workflow(self, thread_id: str) -> tuple[ThreadInfo, Workflow]:
        info = await self.find(thread_id)
        return info, self.service.workflow_of(info)

    async def head(self, thread_id: str) -> tuple[ThreadInfo, Workflow, WorkflowCheckpoint]:
        info, workflow = await self.workflow(thread_id)
        head = await workflow.head(info.thread_id, checkpoint_storage=self.storage)
        if head is None:
            raise not_found(thread_id)
        return info, workflow, head

    async def listed(self, search: str | None, offset: int, limit: int) -> list[dict[str, Any]]:
        """Those that moved last come first."""
        wanted = None if search else offset + limit
        infos = await self.storage.list_threads(prefix=self.space.prefix or None, limit=wanted)
        found: list[dict[str, Any]] = []
        for info in reversed(infos):
            if len(found) >= offset + limit:
                break
            told = plain_thread(info, self.space, await self._about(info))
            if not search or _mentions(told, search):
                found.append(told)
        return found[offset : offset + limit]

    async def told(self, thread_id: str) -> dict[str, Any]:
        info = await self.find(thread_id)
        return plain_thread(info, self.space, await self._about(info))

    async def _about(self, info: ThreadInfo) -> Mapping[str, Any]:
        """What is said of it. Most threads have nothing of that: their head need not be put together."""
        if info.checkpoint_id is None:
            return {}
        stored = await self._find_checkpoint(info.checkpoint_id)
        if stored is None or b'"metadata"' not in stored.root:  # it moved on; or there is nothing
            return {}
        try:
            head = await self.storage.load(info.checkpoint_id)
        except CheckpointNotFound:
            return {}
        about: Mapping[str, Any] = head.metadata.get("about", {})
        return about

    async def delete(self, thread_id: str) -> None:
        """Raises ThreadBusy while it is being run."""
        info = await self.find(thread_id)
        await self.storage.delete_thread(info.thread_id)

    # ------------------------------------------------------------ history

    async def checkpoints(self, thread_id: str, limit: int, before: str | None) -> list[dict[str, Any]]:
        """Newest first."""
        info = await self.find(thread_id)
        if before is not None:
            await self._info(thread_id, before)
        infos = await self.storage.list_checkpoint_infos(thread_id=info.thread_id, limit=limit, before=before)
        return [plain_info(one, self.space) for one in reversed(infos)]

    async def checkpoint(self, thread_id: str, checkpoint_id: str) -> dict[str, Any]:
        _, workflow = await self.known_workflow(thread_id)
        await self._info(thread_id, checkpoint_id)
        if workflow is None:
            found = await self.storage.load(checkpoint_id)
        else:
            found = await load_checkpoint(self.storage, checkpoint_id, workflow.declared_types)
        return plain_checkpoint(found, self.space)

    async def known_workflow(self, thread_id: str) -> tuple[ThreadInfo, Workflow | None]:
        """Reading works without it, with what the storage knows of the types."""
        info = await self.find(thread_id)
        served = self.service.registry.by_workflow_name(info.workflow_name)
        return info, None if served is None else served.workflow

    async def _info(self, thread_id: str, checkpoint_id: str) -> CheckpointInfo:
        """Of a checkpoint of this thread. One of another thread is as good as none."""
        check_id("checkpoint_id", checkpoint_id)
        stored = await self._find_checkpoint(checkpoint_id)
        if stored is None or stored.info.thread_id != self.space.inside(thread_id):
            raise HttpProblem(
                404,
                "checkpoint_not_found",
                f"Thread {thread_id!r} has no checkpoint {checkpoint_id!r}; it may have been pruned.",
                field="checkpoint_id",
            )
        return stored.info

    async def _find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        async with self.storage.access("find a checkpoint"):
            return await self.storage.store.find_checkpoint(checkpoint_id)

    async def diff(self, thread_id: str, checkpoint_id: str, other_id: str) -> dict[str, Any]:
        """`other` may be of any thread of the same user."""
        await self._info(thread_id, checkpoint_id)
        check_id("other", other_id)
        other = await self._find_checkpoint(other_id)
        if other is None or not self.space.holds(other.info.thread_id):
            raise HttpProblem(404, "checkpoint_not_found", f"There is no checkpoint {other_id!r}.", field="other")
        found = await self.storage.diff(checkpoint_id, other_id)
        told: dict[str, Any] = plain(found)
        return told

    async def fork(
        self,
        thread_id: str,
        checkpoint_id: str | None,
        to: str | None,
        state: Mapping[str, Any],
        removed: Iterable[str],
    ) -> dict[str, Any]:
        _refuse_own_keys(state)
        info, workflow = await self.workflow(thread_id)
        source = checkpoint_id or info.checkpoint_id
        if source is None:
            raise not_found(thread_id)
        await self._info(thread_id, source)
        made = await workflow.fork(
            source,
            thread_id=self.space.inside(to or new_thread_id()),
            update_state=state,
            remove_state=removed,
            checkpoint_storage=self.storage,
        )
        return plain_info(made, self.space)

    async def rewind(self, thread_id: str, checkpoint_id: str) -> dict[str, Any]:
        info, workflow = await self.workflow(thread_id)
        await self._info(thread_id, checkpoint_id)
        made = await workflow.rewind(info.thread_id, checkpoint_id, checkpoint_storage=self.storage)
        return plain_info(made, self.space)

    async def pin(self, thread_id: str, checkpoint_id: str | None, *, is_pinned: bool) -> dict[str, Any]:
        info = await self.find(thread_id)
        chosen = checkpoint_id or info.checkpoint_id
        if chosen is None:
            raise not_found(thread_id)
        await self._info(thread_id, chosen)
        await (self.storage.pin(chosen) if is_pinned else self.storage.unpin(chosen))
        return plain_info(await self._info(thread_id, chosen), self.space)

    async def patch_state(self, thread_id: str, state: Mapping[str, Any], removed: Iterable[str]) -> dict[str, Any]:
        _refuse_own_keys(state)
        info, workflow = await self.workflow(thread_id)
        made = await workflow.update_state(info.thread_id, state, remove_state=removed, checkpoint_storage=self.storage)
        return plain_info(made, self.space)

    # ------------------------------------------------------------ who waits for an answer

    async def requests(self, thread_id: str | None, limit: int) -> list[dict[str, Any]]:
        """Those who wait longest first, with what is asked."""
        stored_id = None if thread_id is None else (await self.find(thread_id)).thread_id
        pending = await self.storage.pending_requests(
            thread_id=stored_id, prefix=self.space.prefix or None, limit=limit
        )
        asked: dict[str, Mapping[str, Any]] = {}
        found = []
        for one in pending:
            if one.thread_id not in asked:
                asked[one.thread_id] = await self.asked(self.space.outside(one.thread_id))
            event = asked[one.thread_id].get(one.request_id)
            if event is not None:  # else it was answered since it was listed
                told = plain_request(event, self.space)
                where = {"thread_id": self.space.outside(one.thread_id), "workflow_name": one.workflow_name}
                found.append({**where, **told, "asked_at": one.asked_at.isoformat()})
        return found

    async def asked(self, thread_id: str) -> Mapping[str, Any]:
        try:
            info, workflow = await self.known_workflow(thread_id)
        except HttpProblem:  # deleted since it was listed, or not ours to name
            return {}
        if workflow is not None:
            head = await workflow.head(info.thread_id, checkpoint_storage=self.storage)
        else:
            head = None if info.checkpoint_id is None else await self.storage.load(info.checkpoint_id)
        return {} if head is None else head.pending_request_info_events

    async def answers_for(self, thread_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Answers as what the requests expect. Raises HttpProblem or UnknownRequest."""
        from perdure.graph.types.coercion import coerce

        _, _, head = await self.head(thread_id)
        answers = {}
        for request_id, value in given.items():
            event = head.pending_request_info_events.get(request_id)
            try:
                answers[request_id] = value if event is None else coerce(value, event.response_type)
            except (ValueError, TypeError) as error:
                raise HttpProblem(
                    422,
                    "answer_rejected",
                    f"The answer to request {request_id!r} does not fit: {error}. The request is still pending.",
                    field="value",
                ) from error
        return answers


def _refuse_own_keys(state: Mapping[str, Any]) -> None:
    for key in OWN_KEYS & state.keys():
        raise HttpProblem(
            422,
            "invalid_body",
            f"{key} is no key of the shared state. Nothing was written; PUT the state to add messages.",
            field=f"update_state.{key}",
        )


def _mentions(told: Mapping[str, Any], search: str) -> bool:
    wanted = search.casefold()
    return any(wanted in str(told.get(name) or "").casefold() for name in ("thread_id", "thread_name", "workflow_name"))
