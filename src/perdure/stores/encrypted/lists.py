"""What an encrypted store hands on as it is: lists, and what is done to threads and checkpoints by their ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from perdure.names import RESERVED_THREAD
from perdure.records import CheckpointInfo, Lease, PendingRequest, ThreadInfo
from perdure.store import Store


class EncryptedLists:
    """Of `EncryptedStore`."""

    _store: Store

    async def _check(self) -> None:
        """Raises MissingKey or PlaintextRefused before anything is told or changed."""
        raise NotImplementedError

    async def renew(self, lease: Lease) -> None:
        await self._store.renew(lease)

    async def release(self, lease: Lease) -> None:
        await self._store.release(lease)

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        await self._check()
        return await self._store.infos(workflow_name=workflow_name, thread_id=thread_id, limit=limit, before=before)

    async def threads(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[ThreadInfo]:
        await self._check()
        return await self._store.threads(
            workflow_name=workflow_name,
            thread_id=thread_id,
            prefix=prefix,
            statuses=statuses,
            limit=limit,
            before=before,
        )

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        await self._check()
        one_more = None if limit is None else limit + 1
        found = await self._store.thread_ids(prefix=prefix, after=after, limit=one_more)
        return [one for one in found if one != RESERVED_THREAD][:limit]

    async def last_seq(self, thread_id: str) -> int:
        await self._check()
        return await self._store.last_seq(thread_id)

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        await self._check()
        return await self._store.pending_requests(
            workflow_name=workflow_name, thread_id=thread_id, prefix=prefix, limit=limit
        )

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        await self._check()
        return await self._store.due(now, limit)

    async def pin(self, checkpoint_id: str) -> None:
        await self._check()
        await self._store.pin(checkpoint_id)

    async def unpin(self, checkpoint_id: str) -> None:
        await self._check()
        await self._store.unpin(checkpoint_id)

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        await self._check()
        return await self._store.prune(thread_id, checkpoint_ids, events_before=events_before)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        await self._check()
        if thread_id == RESERVED_THREAD:
            return False
        return await self._store.delete_thread(thread_id, if_unmoved_since=if_unmoved_since)

    async def size(self) -> int:
        return await self._store.size()

    async def close(self) -> None:
        await self._store.close()
