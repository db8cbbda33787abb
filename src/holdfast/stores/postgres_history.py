"""Whole threads of a PostgreSQL store: pins, deleting, copying, moving, rewriting, checking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from os import urandom
from typing import Any

import msgspec

from holdfast.errors import (
    CheckpointNotFound,
    DamagedCheckpoint,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
)
from holdfast.records import CheckpointInfo, Commit, Lease, ThreadStanding
from holdfast.store import Rewrite
from holdfast.stores.packing import seal
from holdfast.stores.postgres_database import Session, Unknown
from holdfast.stores.postgres_pruning import Forgetting
from holdfast.stores.postgres_reading import IS_PINNED, IS_THERE
from holdfast.stores.postgres_rows import (
    COLUMNS,
    TYPES,
    check_id,
    chunks_of,
    commit_of,
    events_of,
    events_seal,
    inbox_of,
    info_of,
    item_seal,
    journal_of,
    key_of,
    root_of,
    root_seal,
    row_of,
    told_by_row,
)

AT_ONCE = 200
"""Commits that are read or written together: their payloads are in memory."""

_COMMITS = (
    "SELECT c.*, t.thread_id, t.silent_before AS silenced, "
    f"({IS_THERE}) AS is_there, {IS_PINNED} AS is_pinned FROM {{s}}.commits c JOIN {{s}}.threads t USING (thread)"
    " WHERE c.thread = $1 AND c.number > $2 ORDER BY c.number LIMIT $3"
).replace("USING (thread)", "ON t.thread = c.thread")

_INSERT = (
    f"INSERT INTO {{s}}.commits (thread, seq, {COLUMNS}) VALUES ($1, nextval('{{s}}.moves'),"
    f" {', '.join(f'${number}' for number, _ in enumerate(TYPES, 2))})"
)

_TABLES = ("commits", "pins", "journal", "inbox", "requests", "threads")


class Whole(Forgetting):
    # ------------------------------------------------------------ pins

    async def pin(self, checkpoint_id: str) -> None:
        # The row is locked, so that a sweep cannot free it in the meantime.
        found = await self.db.rows(
            "WITH found AS (SELECT c.thread, c.number FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
            f" WHERE c.checkpoint_id = $1 AND {IS_THERE} ORDER BY c.seq DESC LIMIT 1 FOR SHARE OF c), pinned AS"
            " (INSERT INTO {s}.pins SELECT thread, number FROM found ON CONFLICT DO NOTHING) SELECT 1 FROM found",
            checkpoint_id.replace("\0", ""),
        )
        if not found or "\0" in checkpoint_id:
            raise CheckpointNotFound(checkpoint_id)

    async def unpin(self, checkpoint_id: str) -> None:
        found = await self.db.rows(
            "WITH found AS (SELECT c.thread, c.number FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
            f" WHERE c.checkpoint_id = $1 AND {IS_THERE} ORDER BY c.seq DESC LIMIT 1), gone AS"
            " (DELETE FROM {s}.pins p USING found WHERE p.thread = found.thread AND p.number = found.number)"
            " SELECT 1 FROM found",
            checkpoint_id.replace("\0", ""),
        )
        if not found or "\0" in checkpoint_id:
            raise CheckpointNotFound(checkpoint_id)

    # ------------------------------------------------------------ deleting

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        is_sure = True

        async def attempt() -> bool:
            nonlocal is_sure
            try:
                async with self.db.transaction() as session:
                    return await self._delete(session, thread_id, if_unmoved_since) or not is_sure
            except Unknown:
                is_sure = False  # it may be gone already
                raise

        return await self.db.again(attempt)

    async def _delete(self, session: Session, thread_id: str, if_unmoved_since: int | None) -> bool:
        key = key_of(thread_id)
        row = await session.row(
            "SELECT t.number, t.owner, t.process, p.identity, p.leased_until > clock_timestamp() AS is_leased,"
            " EXISTS (SELECT 1 FROM {s}.pins WHERE thread = $1) OR EXISTS (SELECT 1 FROM {s}.inbox WHERE thread = $1"
            " AND body IS NOT NULL) AS is_needed FROM {s}.threads t LEFT JOIN {s}.processes p ON p.process = t.process"
            " WHERE t.thread = $1 FOR UPDATE OF t",
            key,
        )
        owner = self.owner_in(row)
        if owner is not None:
            raise ThreadBusy(thread_id, owner)
        if row is None:
            return False
        if if_unmoved_since is not None and (row["is_needed"] or row["number"] != if_unmoved_since):
            return False
        for table in _TABLES:
            await session.rows(f"DELETE FROM {{s}}.{table} WHERE thread = $1", key)
        return True

    # ------------------------------------------------------------ as other stores have it

    async def standing(self, thread_id: str) -> ThreadStanding | None:
        key = key_of(thread_id)
        row = await self.db.row(
            "SELECT t.*, ARRAY(SELECT number FROM {s}.pins WHERE thread = $1 ORDER BY number) AS pins,"
            " ARRAY(SELECT item_id FROM {s}.inbox WHERE thread = $1 AND body IS NULL ORDER BY item) AS consumed"
            " FROM {s}.threads t WHERE t.thread = $1",
            key,
        )
        if row is None:
            return None
        journal = await self.db.rows(
            "SELECT delivery_id, body, seal FROM {s}.journal WHERE thread = $1 ORDER BY fence, entry", key
        )
        inbox = await self.db.rows(
            "SELECT item_id, kind, body, seal FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL ORDER BY item", key
        )
        if not row["number"] and not journal and not inbox and not row["consumed"]:
            return None
        return ThreadStanding(
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
            tuple(await self.pending_requests(thread_id=thread_id)),
            journal_of(thread_id, row["number"], journal),
            inbox_of(thread_id, inbox),
            row["consumed"],
            row["pins"],
        )

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        rows = await self.db.rows(_COMMITS, key_of(thread_id), after, limit)
        there = [row for row in rows if row["is_there"]]
        previous = await self.previous_of([(row["thread"], row) for row in there])
        infos = {row["number"]: info_of(thread_id, row, one) for row, one in zip(there, previous, strict=True)}
        return [commit_of(thread_id, row, infos.get(row["number"]), row["silenced"]) for row in rows]

    async def add_thread(self, standing: ThreadStanding, commits: Iterable[Commit]) -> None:
        given = iter(commits)
        async with self.db.single_transaction() as session:
            await self._make_room(session, standing.thread_id)
            while batch := list(islice(given, AT_ONCE)):
                await self._add(session, standing, batch)
            await self._stand(session, standing)

    async def _make_room(self, session: Session, thread_id: str) -> None:
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

    async def _add(self, session: Session, standing: ThreadStanding, commits: Sequence[Commit]) -> None:
        for commit in commits:
            if commit.info is not None:
                check_id("checkpoint id", commit.info.checkpoint_id)
                check_id("workflow name", commit.info.workflow_name)
        ids = [commit.info.checkpoint_id for commit in commits if commit.info is not None]
        known = await session.row(
            "SELECT c.checkpoint_id, t.thread_id FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
            " WHERE c.checkpoint_id = ANY ($1::text[]) LIMIT 1",
            ids,
        )
        if known is not None:
            reason = f"its checkpoint {known['checkpoint_id']!r} is one of thread {known['thread_id']!r} here"
            raise ThreadExists(standing.thread_id, reason)
        lease = Lease(standing.thread_id, "", 0)
        key = key_of(standing.thread_id)
        rows = [(key, *row_of(msgspec.structs.replace(commit, lease=lease))) for commit in commits]
        await session.many(_INSERT, rows)

    async def _stand(self, session: Session, standing: ThreadStanding) -> None:
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
        await session.many("INSERT INTO {s}.pins VALUES ($1, $2)", [(key, number) for number in standing.pins])
        await session.many(
            "INSERT INTO {s}.requests VALUES ($1, $2, $3, $4, $5, $6)",
            [
                (key, one.request_id, one.executor_id, one.asked_at, one.deadline, one.assignee)
                for one in standing.requests
            ],
        )
        insert = "INSERT INTO {s}.inbox (thread, item_id, kind, body, seal) VALUES ($1, $2, $3, $4, $5)"
        await session.many(insert, [(key, item_id, "", None, b"") for item_id in standing.consumed])
        await session.many(
            insert,
            [
                (key, one.item_id, one.kind, one.body, item_seal(thread_id, one.item_id, one.kind, one.body))
                for one in standing.inbox
            ],
        )
        await session.many(
            "INSERT INTO {s}.journal VALUES ($1, $2, $3, $4, $5, $6)",
            [
                (key, standing.fence, place, one.delivery_id, one.body, seal(thread_id, one.delivery_id, one.body))
                for place, one in enumerate(standing.journal, 1)
            ],
        )

    async def copy_thread(self, thread_id: str, to: str) -> None:
        standing = await self.standing(thread_id)
        if standing is None:
            raise ThreadNotFound(thread_id)
        changes = {"thread_id": to, "journal": (), "inbox": (), "consumed": (), "pins": (), "fence": 0}
        copy = msgspec.structs.replace(standing, **changes)
        ids: dict[str, str] = {}
        async with self.db.single_transaction() as session:
            try:
                await self._make_room(session, to)
            except ThreadExists:
                raise ThreadBusy(to, self.owner_in(await self._owner_row(session, to))) from None
            async for batch in self._all_commits(thread_id, standing.number):
                await self._add(session, copy, [_renamed(one, to, ids) for one in batch])
            await self._stand(session, copy)

    async def _owner_row(self, session: Session, thread_id: str) -> Any:
        return await session.row(
            "SELECT t.owner, t.process, p.identity, p.leased_until > clock_timestamp() AS is_leased"
            " FROM {s}.threads t LEFT JOIN {s}.processes p ON p.process = t.process WHERE t.thread = $1",
            key_of(thread_id),
        )

    async def _all_commits(self, thread_id: str, up_to: int) -> AsyncIterator[list[Commit]]:
        after = 0
        while found := [
            one for one in await self.commits(thread_id, after=after, limit=AT_ONCE) if one.number <= up_to
        ]:
            yield found
            after = found[-1].number

    # ------------------------------------------------------------ rewriting

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        key, count, after = key_of(thread_id), 0, 0
        damage: DamagedCheckpoint | None = None
        while numbers := [
            row["number"]
            for row in await self.db.rows(
                "SELECT number FROM {s}.commits WHERE thread = $1 AND number > $2 ORDER BY number LIMIT $3",
                key,
                after,
                AT_ONCE,
            )
        ]:
            after = numbers[-1]
            for number in numbers:
                try:
                    count += await self._rewrite_commit(thread_id, number, change)
                except DamagedCheckpoint as error:
                    damage = damage or error
        count += await self._rewrite_waiting(thread_id, change)
        if damage is not None:  # told when the rest is done
            raise damage
        return count

    async def _rewrite_commit(self, thread_id: str, number: int, change: Rewrite) -> int:
        key = key_of(thread_id)

        async def attempt() -> int:
            async with self.db.transaction() as session:
                row = await session.row(
                    "SELECT * FROM {s}.commits WHERE thread = $1 AND number = $2 FOR UPDATE", key, number
                )
                if row is None:
                    return 0
                root, events, chunks = row["root"], row["events"], chunks_of(thread_id, row)
                events_of(thread_id, row)
                if row["checkpoint_id"] is not None:
                    root_of(thread_id, row)
                new_root = None if root is None else change("root", str(number), root)
                new_events = None if events is None else change("events", str(number), events)
                new_chunks = {name: change("chunk", name, chunk) for name, chunk in chunks.items()}
                changed = (new_root != root) + (new_events != events)
                changed += sum(new_chunks[name] != chunks[name] for name in chunks)
                if changed:
                    told = (row["first_seq"], row["event_count"])
                    await session.rows(
                        "UPDATE {s}.commits SET root = $3, root_seal = $4, events = $5, events_seal = $6, chunks = $7"
                        " WHERE thread = $1 AND number = $2",
                        key,
                        number,
                        new_root,
                        None if new_root is None else root_seal(thread_id, number, told_by_row(row), new_root),
                        new_events,
                        None if new_events is None else events_seal(thread_id, number, *told, new_events),
                        [*new_chunks.values()] or None,
                    )
                return int(changed)

        return await self.db.again(attempt)

    async def _rewrite_waiting(self, thread_id: str, change: Rewrite) -> int:
        key = key_of(thread_id)

        async def attempt() -> int:
            count = 0
            async with self.db.transaction() as session:
                for row in await session.rows("SELECT * FROM {s}.journal WHERE thread = $1 FOR UPDATE", key):
                    body = change("journal", str(row["delivery_id"]), row["body"])
                    if body == row["body"]:
                        continue
                    count += 1
                    await session.rows(
                        "UPDATE {s}.journal SET body = $4, seal = $5 WHERE thread = $1 AND fence = $2 AND entry = $3",
                        key,
                        row["fence"],
                        row["entry"],
                        body,
                        seal(thread_id, row["delivery_id"], body),
                    )
                waiting = "SELECT * FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL FOR UPDATE"
                for row in await session.rows(waiting, key):
                    body = change("inbox", row["item_id"], row["body"])
                    if body == row["body"]:
                        continue
                    count += 1
                    await session.rows(
                        "UPDATE {s}.inbox SET body = $3, seal = $4 WHERE thread = $1 AND item_id = $2",
                        key,
                        row["item_id"],
                        body,
                        item_seal(thread_id, row["item_id"], row["kind"], body),
                    )
            return count

        return await self.db.again(attempt)


def _renamed(commit: Commit, thread_id: str, ids: dict[str, str]) -> Commit:
    """The same of another thread, under a new checkpoint id."""
    info = commit.info
    lease = Lease(thread_id, "", 0)
    if info is None:
        return msgspec.structs.replace(commit, lease=lease)
    made = ids[info.checkpoint_id] = urandom(12).hex()
    previous = info.previous_checkpoint_id
    copy: CheckpointInfo = msgspec.structs.replace(
        info,
        checkpoint_id=made,
        thread_id=thread_id,
        previous_checkpoint_id=None if previous is None else ids.get(previous, previous),
        is_pinned=False,
    )
    return msgspec.structs.replace(commit, lease=lease, info=copy)
