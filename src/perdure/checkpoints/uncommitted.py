"""The tail of a thread: what was recorded and posted after its head, which the next commits take in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perdure.checkpoints.migration.migrations import Migrator, RenamedType
from perdure.checkpoints.migration.stored_form import StoredWaiting
from perdure.codec import Codec, Tree
from perdure.codecs.walk import from_bytes, to_bytes
from perdure.errors import DamagedCheckpoint, UnreadableValue
from perdure.records import CheckpointInfo, OpenedThread

# ---------------------------------------------------------------- lagging


class AsyncCommits:
    """A line of writes, each begun when the one before it has ended. None is begun after one that failed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[asyncio.Task[None]] = deque()
        self._failure: BaseException | None = None

    async def add(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Take one more in, waiting while there are too many. Raises what an earlier one raised."""
        self._take_out_ended()
        self._raise_failure()
        while len(self._line) >= self._most:
            await asyncio.wait([self._line[0]])
            self._take_out_ended()
        self._raise_failure()
        before = self._line[-1] if self._line else None
        self._line.append(asyncio.get_running_loop().create_task(self._write(before, write)))

    async def settled(self) -> None:
        """Wait for all of them. Raises what the one that failed raised, once."""
        while self._line:
            await asyncio.wait([self._line[-1]])
            self._take_out_ended()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _take_out_ended(self) -> None:
        while self._line and self._line[0].done():
            self._line.popleft().result()

    async def _write(self, before: asyncio.Task[None] | None, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            if self._failure is None:
                await write()
        except BaseException as error:
            self._failure = error
            raise


MESSAGE = "message"
"""Kind of an inbox item that holds a message for the start executor."""

_MIGRATED = "migrated"
_ENTRIES = "entries"
_MARKED = "$migrated"
"""No codec makes an object that begins with it."""


def posted(tree: Tree, mark: str | None) -> bytes:
    """The body of an inbox item, with the last migration that it has behind it."""
    return to_bytes(tree if mark is None else {_MARKED: mark, "message": tree})


class Tail:
    """Journal and inbox as they were when the thread was opened. Raises DamagedCheckpoint for what cannot be read."""

    def __init__(self, opened: OpenedThread, migrator: Migrator | None) -> None:
        self._opened = opened
        self._migrator = migrator
        self.mark = None if migrator is None else migrator.mark
        self._journal: dict[int, list[StoredWaiting]] | None = None
        self._inbox: dict[str, StoredWaiting] | None = None
        self.is_rewritten = False
        """Whether the journal is in the store as it was before it was migrated."""

    @property
    def is_stale(self) -> bool:
        """Whether something in it has not all migrations behind it."""
        if self.mark is None or not (self._opened.journal or self._opened.inbox):
            return False
        waiting = [*self._read_inbox().values(), *(one for entries in self._read_journal().values() for one in entries)]
        return any(one.migrated != self.mark for one in waiting)

    def recorded(self, tree: dict[str, Tree]) -> bytes:
        """The body of a journal entry, with the last migration that it has behind it."""
        return to_bytes(tree if self.mark is None else {**tree, _MIGRATED: self.mark})

    def journal(self) -> dict[int, list[Tree]]:
        return {key: [one.tree for one in entries] for key, entries in self._read_journal().items()}

    def inbox(self, codec: Codec, renamed: Sequence[RenamedType]) -> dict[str, Any]:
        """The messages in it. `renamed`: of the checkpoint that the thread stands at."""
        return {key: self._message(one, codec, renamed) for key, one in self._read_inbox().items()}

    def migrate(self, tree: Tree, info: CheckpointInfo, codec: Codec) -> Tree:
        """The head's tree for the workflow of today; the journal and the inbox go the same way."""
        if self._migrator is None:
            return tree
        waiting = [one for entries in self._read_journal().values() for one in entries]
        after = self._migrator.migrated(tree, info, codec, [*waiting, *self._read_inbox().values()])
        self.is_rewritten = after is not tree and bool(waiting)
        return after

    def rewritten(self, unsettled: Sequence[int]) -> list[tuple[int, bytes]]:
        """Journal entries to be stored before a migrated head is: those of these deliveries stay when it comes, and
        would not fit it. Each takes the place of all that the store has of its delivery."""
        self.is_rewritten = False
        journal = self._read_journal()
        found = {key: [one.tree for one in journal[key]] for key in dict.fromkeys(unsettled) if key in journal}
        return [(key, self.recorded({_ENTRIES: entries})) for key, entries in found.items()]

    # ------------------------------------------------------------ reading

    def _read_journal(self) -> dict[int, list[StoredWaiting]]:
        if self._journal is None:
            found: dict[int, list[StoredWaiting]] = {}
            for entry in self._opened.journal:
                tree = self._tree(entry.body, "its journal")
                mark = tree.pop(_MIGRATED, None) if type(tree) is dict else None
                if type(tree) is dict and _ENTRIES in tree:
                    found[entry.delivery_id] = [StoredWaiting(one, mark, entry.delivery_id) for one in tree[_ENTRIES]]
                else:
                    found.setdefault(entry.delivery_id, []).append(StoredWaiting(tree, mark, entry.delivery_id))
                self._check(mark, "journal")
            self._journal = found
        return self._journal

    def _read_inbox(self) -> dict[str, StoredWaiting]:
        if self._inbox is None:
            found: dict[str, StoredWaiting] = {}
            for item in self._opened.inbox:
                if item.kind == MESSAGE:
                    tree, mark = self._tree(item.body, "its inbox"), None
                    if type(tree) is dict and _MARKED in tree:
                        tree, mark = tree["message"], tree[_MARKED]
                    found[item.item_id] = StoredWaiting(tree, mark)
                    self._check(mark, "inbox")
            self._inbox = found
        return self._inbox

    def _message(self, one: StoredWaiting, codec: Codec, renamed: Sequence[RenamedType]) -> Any:
        if self._migrator is not None:
            self._migrator.catch_up(one, renamed, self.mark)
        try:
            return codec.decode(one.tree, "message")
        except UnreadableValue as error:
            raise self._damaged(error) from error

    def _tree(self, body: bytes, what: str) -> Any:
        try:
            return from_bytes(body, what)
        except UnreadableValue as error:
            raise self._damaged(error) from error

    def _check(self, mark: str | None, where: str) -> None:
        if self._migrator is not None and mark is not None:
            self._migrator.check_mark(mark, where, str(self._opened.info))

    def _damaged(self, error: UnreadableValue) -> DamagedCheckpoint:
        head = self._opened.info
        return DamagedCheckpoint(str(head and head.checkpoint_id), str(error), self._opened.lease.thread_id)
