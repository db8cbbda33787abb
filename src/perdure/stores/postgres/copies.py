"""Whole threads of a PostgreSQL store: pins, deleting, copying, and moving to and from other stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from os import urandom
from typing import Any
from uuid import uuid4

import msgspec

from perdure.errors import CheckpointNotFound, StorageFailed, ThreadBusy, ThreadExists, ThreadNotFound
from perdure.records import CheckpointInfo, Commit, Lease, PendingRequest, ThreadHeader
from perdure.stores.packing import consumed_seal, seal
from perdure.stores.postgres.database import PgSession
from perdure.stores.postgres.lists import IS_THERE
from perdure.stores.postgres.pool import IdTaken
from perdure.stores.postgres.pruning import OWNER, Forgetting
from perdure.stores.postgres.rows import (
    COLUMNS,
    TYPES,
    check_id,
    commit_of,
    id_in,
    inbox_of,
    info_of,
    is_text,
    item_seal,
    journal_of,
    key_of,
    packed_id,
    row_of,
)

AT_ONCE = 200
"""Commits that are read or written together: their payloads are in memory."""

_COMMITS = (
    "SELECT c.*, t.thread_id, t.silent_before AS silenced, "
    f"({IS_THERE}) AS is_there FROM {{s}}.commits c JOIN {{s}}.threads t USING (thread)"
    " WHERE c.thread = $1 AND c.number > $2 ORDER BY c.number LIMIT $3"
).replace("USING (thread)", "ON t.thread = c.thread")

_INSERT = (
    f"INSERT INTO {{s}}.commits (thread, seq, {COLUMNS}) VALUES ($1, nextval('{{s}}.moves'),"
    f" {', '.join(f'${number}' for number, _ in enumerate(TYPES, 2))})"
)

_JOURNAL, _INBOX, _REQUESTS = (
    "FROM {s}.journal WHERE thread = $1 ORDER BY entry",
    "FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL ORDER BY item",
    'FROM {s}.requests WHERE thread = $1 ORDER BY asked_at, request_id COLLATE "C"',
)
_WHOLE = f"""
SELECT t.*, ARRAY(SELECT number FROM {{s}}.commits WHERE thread = $1 AND is_pinned ORDER BY number) AS pins,
  ARRAY(SELECT item_id FROM {{s}}.inbox WHERE thread = $1 AND body IS NULL ORDER BY item) AS consumed,
  ARRAY(SELECT delivery_id {_JOURNAL}) AS deliveries, ARRAY(SELECT body {_JOURNAL}) AS bodies,
  ARRAY(SELECT seal {_JOURNAL}) AS seals, ARRAY(SELECT item_id {_INBOX}) AS item_ids,
  ARRAY(SELECT kind {_INBOX}) AS kinds, ARRAY(SELECT body {_INBOX}) AS items, ARRAY(SELECT seal {_INBOX}) AS item_seals,
  ARRAY(SELECT request_id {_REQUESTS}) AS request_ids, ARRAY(SELECT executor_id {_REQUESTS}) AS executors,
  ARRAY(SELECT asked_at {_REQUESTS}) AS asked, ARRAY(SELECT deadline {_REQUESTS}) AS deadlines,
  ARRAY(SELECT assignee {_REQUESTS}) AS assignees
FROM {{s}}.threads t WHERE t.thread = $1
"""
"""All of a thread but its commits, as one look at it."""

_TABLES = ("commits", "journal", "inbox", "requests", "threads")


class Whole(Forgetting):
    # ------------------------------------------------------------ pins

    async def pin(self, checkpoint_id: str) -> None:
        await self._set_pin(checkpoint_id, is_pinned=True)

    async def unpin(self, checkpoint_id: str) -> None:
        await self._set_pin(checkpoint_id, is_pinned=False)

    async def _set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        """Raises CheckpointNotFound. The thread is locked against being deleted meanwhile."""
        found = is_text(checkpoint_id) and await self.db.rows(
            "WITH found AS (SELECT c.thread, c.number FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
            f" WHERE c.checkpoint_id = $1 AND {IS_THERE} ORDER BY c.seq DESC LIMIT 1 FOR KEY SHARE OF t)"
            " UPDATE {s}.commits c SET is_pinned = $2 FROM found WHERE c.thread = found.thread"
            " AND c.number = found.number AND c.checkpoint_id = $1 RETURNING 1",
            packed_id(checkpoint_id),
            is_pinned,
        )
        if not found:
            raise CheckpointNotFound(checkpoint_id)

    # ------------------------------------------------------------ deleting

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        was_deleting = False

        async def attempt() -> bool:
            nonlocal was_deleting
            async with self.db.transaction() as session:
                row = await self._look_locked(session, thread_id)
                if row is None:
                    return was_deleting  # an attempt whose end was not told did it
                if if_unmoved_since is not None and (row["is_needed"] or row["number"] != if_unmoved_since):
                    return False
                was_deleting = True
                for table in _TABLES:
                    await session.rows(f"DELETE FROM {{s}}.{table} WHERE thread = $1", key_of(thread_id))
            return True

        return await self.db.again(attempt)

    async def _look_locked(self, session: PgSession, thread_id: str) -> Any:
        """Raises ThreadBusy."""
        key = key_of(thread_id)
        await session.value("SELECT 1 FROM {s}.threads WHERE thread = $1 FOR UPDATE", key)
        # Looked at after the lock, which may have been waited for: nobody claims, posts or pins any more.
        row = await session.row(
            "SELECT t.number, t.owner, t.process, p.identity, p.leased_until > clock_timestamp() AS is_leased,"
            " EXISTS (SELECT 1 FROM {s}.commits WHERE thread = $1 AND is_pinned) OR EXISTS (SELECT 1 FROM {s}.inbox"
            " WHERE thread = $1 AND body IS NOT NULL) AS is_needed FROM {s}.threads t"
            " LEFT JOIN {s}.processes p ON p.process = t.process"
            " WHERE t.thread = $1",
            key,
        )
        owner = self.owner_in(row)
        if owner is not None:
            raise ThreadBusy(thread_id, owner)
        return row

    # ------------------------------------------------------------ as other stores have it

    async def standing(self, thread_id: str) -> ThreadHeader | None:
        return _standing(thread_id, await self.db.row(_WHOLE, key_of(thread_id)))

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        return await self._commits(None, thread_id, after, limit)

    async def _commits(self, session: PgSession | None, thread_id: str, after: int, limit: int | None) -> list[Commit]:
        rows = await (session or self.db).rows(_COMMITS, key_of(thread_id), after, limit)
        there = [row for row in rows if row["is_there"]]
        previous = await self.previous_of([(row["thread"], row) for row in there], session)
        infos = {row["number"]: info_of(thread_id, row, one) for row, one in zip(there, previous, strict=True)}
        return [commit_of(thread_id, row, infos.get(row["number"]), row["silenced"]) for row in rows]

    async def add_thread(self, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
        check_id("thread id", standing.thread_id, None)
        given = iter(commits)
        try:
            async with self.db.single_transaction() as session:
                await self._make_room(session, standing.thread_id)
                while batch := list(islice(given, AT_ONCE)):
                    await self._add(session, standing, batch)
                await self._stand(session, standing)
        except StorageFailed as error:
            if isinstance(error.__cause__, IdTaken):
                reason = "one of its checkpoints has just come to be in another thread here"
                raise ThreadExists(standing.thread_id, reason) from error
            raise

    async def _make_room(self, session: PgSession, thread_id: str) -> None:
        """Raises ThreadExists if anything was ever put into it."""
        key = key_of(thread_id)
        made = await session.value(
            "INSERT INTO {s}.threads (thread, thread_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1",
            key,
            thread_id,
        )
        if made is None:
            is_used = await session.value(
                "SELECT number > 0 OR owner IS NOT NULL OR EXISTS (SELECT 1 FROM {s}.inbox WHERE thread = $1)"
                " OR EXISTS (SELECT 1 FROM {s}.journal WHERE thread = $1) FROM {s}.threads"
                " WHERE thread = $1 FOR UPDATE",
                key,
            )
            if is_used is not False:
                raise ThreadExists(thread_id)

    async def _add(self, session: PgSession, standing: ThreadHeader, commits: Sequence[Commit]) -> None:
        for commit in commits:
            if commit.info is not None:
                check_id("checkpoint id", commit.info.checkpoint_id)
                check_id("workflow name", commit.info.workflow_name)
        ids = [packed_id(commit.info.checkpoint_id) for commit in commits if commit.info is not None]
        known = await session.row(
            "SELECT c.checkpoint_id, t.thread_id FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
            " WHERE c.checkpoint_id = ANY ($1::bytea[]) LIMIT 1",
            ids,
        )
        if known is not None:
            reason = f"its checkpoint {id_in(known['checkpoint_id'])!r} is one of thread {known['thread_id']!r} here"
            raise ThreadExists(standing.thread_id, reason)
        lease = Lease(standing.thread_id, "", 0)
        key = key_of(standing.thread_id)
        rows = [(key, *row_of(msgspec.structs.replace(commit, lease=lease))) for commit in commits]
        await session.many(_INSERT, rows)
        # What the other store had forgotten and not freed is freed here.
        left_over = [one.number for one in commits if _is_left_over(one)]
        await session.rows(
            "UPDATE {s}.threads SET forgotten = forgotten || $2::bigint[] WHERE thread = $1", key, left_over
        )

    async def _stand(self, session: PgSession, standing: ThreadHeader) -> None:
        thread_id, key = standing.thread_id, key_of(standing.thread_id)
        await session.rows(
            "UPDATE {s}.threads SET workflow = $2, fence = GREATEST(fence, $3), number = $4, head = $5, status = $6,"
            " updated_at = $7, last_seq = $8, first_seq = $9, due_at = $10, moved = nextval('{s}.moves')"
            " WHERE thread = $1",
            key,
            standing.workflow_name,
            standing.fence,
            standing.number,
            standing.head,
            standing.status,
            standing.updated_at,
            standing.last_seq,
            standing.first_seq,
            standing.due_at,
        )
        pin = "UPDATE {s}.commits SET is_pinned = true WHERE thread = $1 AND number = ANY ($2::bigint[])"
        await session.rows(pin, key, list(standing.pins))
        await session.many(
            "INSERT INTO {s}.requests VALUES ($1, $2, $3, $4, $5, $6)",
            [
                (key, one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)
                for one in standing.requests
            ],
        )
        insert = "INSERT INTO {s}.inbox (thread, item_id, kind, body, seal) VALUES ($1, $2, $3, $4, $5)"
        await session.many(insert, [(key, one, "", None, consumed_seal(thread_id, one)) for one in standing.consumed])
        await session.many(
            insert,
            [
                (key, one.item_id, one.kind, one.body, item_seal(thread_id, one.item_id, one.kind, one.body))
                for one in standing.inbox
            ],
        )
        await session.many(
            "INSERT INTO {s}.journal (thread, mark, delivery_id, body, seal) VALUES ($1, $2, $3, $4, $5)",
            [
                (key, uuid4(), one.delivery_id, one.body, seal(thread_id, one.delivery_id, one.body))
                for one in standing.journal
            ],
        )

    async def copy_thread(self, thread_id: str, to: str) -> None:
        check_id("thread id", to, None)

        ids: dict[str, str] = {}
        """What checkpoints are called in the copy: by these it is known."""

        async def attempt() -> None:
            async with self.db.transaction("repeatable_read") as session:  # one moment of the thread
                is_made = "SELECT 1 FROM {s}.commits WHERE thread = $1 AND checkpoint_id = ANY ($2::bytea[]) LIMIT 1"
                if not ids or not await session.value(is_made, key_of(to), [*map(packed_id, ids.values())]):
                    await self._copy(session, thread_id, to, ids)

        await self.db.again(attempt)

    async def _copy(self, session: PgSession, thread_id: str, to: str, ids: dict[str, str]) -> None:
        standing = _standing(thread_id, await session.row(_WHOLE, key_of(thread_id)))
        if standing is None:
            raise ThreadNotFound(thread_id)
        changes = {"thread_id": to, "journal": (), "inbox": (), "consumed": (), "pins": (), "fence": 0}
        copy = msgspec.structs.replace(standing, **changes)
        try:
            await self._make_room(session, to)
        except ThreadExists:
            raise ThreadBusy(to, self.owner_in(await session.row(OWNER, key_of(to)))) from None
        after = 0
        while found := await self._commits(session, thread_id, after, AT_ONCE):
            await self._add(session, copy, [_renamed(one, to, ids) for one in found])
            after = found[-1].number
        await self._stand(session, copy)


def _is_left_over(commit: Commit) -> bool:
    """Of a checkpoint that was forgotten: chunks, or links, that may be of no use any more."""
    refers = commit.events is not None and commit.events.refers
    return commit.info is None and not refers and bool(commit.chunks or commit.parent is not None or commit.carried)


def _standing(thread_id: str, row: Any) -> ThreadHeader | None:
    """Raises DamagedCheckpoint."""
    if row is None:
        return None
    journal = [*zip(row["deliveries"], row["bodies"], row["seals"], strict=True)]
    inbox = [*zip(row["item_ids"], row["kinds"], row["items"], row["item_seals"], strict=True)]
    if not row["number"] and not journal and not inbox and not row["consumed"]:
        return None
    asked = zip(row["request_ids"], row["executors"], row["asked"], row["deadlines"], row["assignees"], strict=True)
    return ThreadHeader(
        thread_id,
        row["workflow"],
        row["number"],
        row["fence"],
        row["status"],
        row["updated_at"],
        row["last_seq"],
        row["first_seq"],
        row["head"],
        row["due_at"],
        tuple(PendingRequest(thread_id, *one, row["workflow"]) for one in asked),
        journal_of(thread_id, row["number"], journal),
        inbox_of(thread_id, inbox),
        row["consumed"],
        row["pins"],
    )


def _renamed(commit: Commit, thread_id: str, ids: dict[str, str]) -> Commit:
    """The same of another thread, under a new checkpoint id."""
    info = commit.info
    lease = Lease(thread_id, "", 0)
    if info is None:
        return msgspec.structs.replace(commit, lease=lease)
    made = ids.setdefault(info.checkpoint_id, urandom(12).hex())
    previous = info.previous_checkpoint_id
    copy: CheckpointInfo = msgspec.structs.replace(
        info,
        checkpoint_id=made,
        thread_id=thread_id,
        previous_checkpoint_id=None if previous is None else ids.get(previous, previous),
        is_pinned=False,
    )
    return msgspec.structs.replace(commit, lease=lease, info=copy)
