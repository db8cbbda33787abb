"""The tail of an opened thread: journal and inbox items after its head, migrated together with the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.checkpoints.migration.migrations import Migrator, RenamedType
from perdure.checkpoints.migration.stored_form import StoredWaiting
from perdure.codec import Codec, Tree
from perdure.codecs.walk import from_bytes, to_bytes
from perdure.errors import DamagedCheckpoint, UnreadableValue
from perdure.records import CheckpointInfo, OpenedThread

MESSAGE = "message"
"""Kind of an inbox item that holds a message for the start executor."""

_MIGRATED = "migrated"
_ENTRIES = "entries"
_MARKED = "$migrated"
"""No codec encodes an object whose first key is this."""


def encode_item(tree: Tree, mark: str | None) -> bytes:
    """The body of an inbox item, marked with the last migration of its sender."""
    return to_bytes(tree if mark is None else {_MARKED: mark, "message": tree})


class Tail:
    """Journal and inbox at the time of the opening. Raises DamagedCheckpoint for an unreadable entry."""

    def __init__(self, opened: OpenedThread, migrator: Migrator | None) -> None:
        self._opened = opened
        self._migrator = migrator
        self.mark = None if migrator is None else migrator.mark
        self._journal: dict[int, list[StoredWaiting]] | None = None
        self._inbox: dict[str, StoredWaiting] | None = None
        self.must_rewrite = False
        """Whether the store still has the journal from before the migration."""

    @property
    def is_stale(self) -> bool:
        """Whether an entry lacks migrations."""
        if self.mark is None or not (self._opened.journal or self._opened.inbox):
            return False
        return any(entry.migrated != self.mark for entry in (*self._read_inbox().values(), *self._journal_entries()))

    def encode_entry(self, tree: dict[str, Tree]) -> bytes:
        """The body of a journal entry, marked with the last migration of the workflow."""
        return to_bytes(tree if self.mark is None else {**tree, _MIGRATED: self.mark})

    def journal(self) -> dict[int, list[Tree]]:
        return {key: [entry.tree for entry in entries] for key, entries in self._read_journal().items()}

    def inbox(self, codec: Codec, renamed: Sequence[RenamedType]) -> dict[str, Any]:
        """The messages by item id. `renamed`: the renamed types of the head."""
        return {key: self._decode_message(item, codec, renamed) for key, item in self._read_inbox().items()}

    def migrate(self, tree: Tree, info: CheckpointInfo, codec: Codec) -> Tree:
        """The head's tree for the workflow of today; also migrates the journal and the inbox."""
        if self._migrator is None:
            return tree
        waiting = self._journal_entries()
        after = self._migrator.migrate(tree, info, codec, [*waiting, *self._read_inbox().values()])
        self.must_rewrite = after is not tree and bool(waiting)
        return after

    def rewrite(self, unsettled: Sequence[int]) -> list[tuple[int, bytes]]:
        """The journal entries to store before a migrated head: those of these deliveries stay after its commit, so they
        must match it. Each replaces all entries of its delivery in the store."""
        self.must_rewrite = False
        journal = self._read_journal()
        trees = {key: [entry.tree for entry in journal[key]] for key in dict.fromkeys(unsettled) if key in journal}
        return [(key, self.encode_entry({_ENTRIES: entries})) for key, entries in trees.items()]

    def _journal_entries(self) -> list[StoredWaiting]:
        return [entry for entries in self._read_journal().values() for entry in entries]

    def _read_journal(self) -> dict[int, list[StoredWaiting]]:
        if self._journal is None:
            journal: dict[int, list[StoredWaiting]] = {}
            for entry in self._opened.journal:
                tree = self._decode_tree(entry.body, "its journal")
                mark = tree.pop(_MIGRATED, None) if type(tree) is dict else None
                if type(tree) is dict and _ENTRIES in tree:
                    journal[entry.delivery_id] = [
                        StoredWaiting(part, mark, entry.delivery_id) for part in tree[_ENTRIES]
                    ]
                else:
                    journal.setdefault(entry.delivery_id, []).append(StoredWaiting(tree, mark, entry.delivery_id))
                self._check_mark(mark, "journal")
            self._journal = journal
        return self._journal

    def _read_inbox(self) -> dict[str, StoredWaiting]:
        if self._inbox is None:
            inbox: dict[str, StoredWaiting] = {}
            for item in self._opened.inbox:
                if item.kind == MESSAGE:
                    tree, mark = self._decode_tree(item.body, "its inbox"), None
                    if type(tree) is dict and _MARKED in tree:
                        tree, mark = tree["message"], tree[_MARKED]
                    inbox[item.item_id] = StoredWaiting(tree, mark)
                    self._check_mark(mark, "inbox")
            self._inbox = inbox
        return self._inbox

    def _decode_message(self, item: StoredWaiting, codec: Codec, renamed: Sequence[RenamedType]) -> Any:
        if self._migrator is not None:
            self._migrator.catch_up(item, renamed, self.mark)
        try:
            return codec.decode(item.tree, "message")
        except UnreadableValue as error:
            raise self._damage_error(error) from error

    def _decode_tree(self, body: bytes, what: str) -> Any:
        try:
            return from_bytes(body, what)
        except UnreadableValue as error:
            raise self._damage_error(error) from error

    def _check_mark(self, mark: str | None, where: str) -> None:
        if self._migrator is not None and mark is not None:
            self._migrator.check_mark(mark, where, str(self._opened.info))

    def _damage_error(self, error: UnreadableValue) -> DamagedCheckpoint:
        head = self._opened.info
        return DamagedCheckpoint(str(head and head.checkpoint_id), str(error), self._opened.lease.thread_id)
