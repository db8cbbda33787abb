"""Migrations: named steps that convert a stored thread to the workflow of today, each applied once.

A checkpoint, a journal entry and an inbox item each record the migrations applied to them. Opening a thread applies the
missing ones in memory; the next commit stores the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from perdure.checkpoints.migration.renaming import rename_types
from perdure.checkpoints.migration.stored_form import StoredForm, StoredWaiting
from perdure.codec import Codec, Tree
from perdure.codecs.walk import from_bytes, to_bytes
from perdure.errors import DamagedCheckpoint, IncompatibleWorkflow, MigrationFailed, UnreadableValue, did_you_mean
from perdure.records import CheckpointInfo, OpenedThread

RenamedType = tuple[str, str, str]
"""A migration, and the old and the new name of a type that it renamed."""


@dataclass(frozen=True)
class Migration:
    """One step, and the name under which a checkpoint records it."""

    name: str
    function: Callable[[StoredForm], None]


AnyMigration: TypeAlias = "Migration | Callable[[StoredForm], None]"
"""As users write them: a plain function has its own name."""


class Migrations:
    """The steps of a workflow, in order. Raises TypeError or ValueError for a step that is not a migration."""

    def __init__(self, migrations: Iterable[AnyMigration] = ()) -> None:
        self.steps = tuple(_as_step(migration) for migration in migrations)
        self.names = tuple(step.name for step in self.steps)
        for name in self.names:
            if self.names.count(name) > 1:
                raise ValueError(f"Two migrations are called {name!r}. A checkpoint records them by their names.")

    def find_differences(self, applied: Sequence[str]) -> list[str]:
        """Why the list does not continue the applied steps; empty if it does."""
        if self.names[: len(applied)] == tuple(applied):
            return []
        unknown = [name for name in applied if name not in self.names]
        if unknown:
            return [
                f"migration {name!r} was applied to it, and is not among the workflow's{did_you_mean(name, self.names)}"
                for name in unknown
            ]
        listed = [name for name in self.names if name in applied]
        if listed != list(applied):
            then, now = (", ".join(map(repr, names)) for names in (applied, listed))
            return [f"its migrations were applied in the order {then}, and are listed as {now}"]
        early = next(name for name in self.names if name not in applied)
        return [f"migration {early!r} stands before {applied[-1]!r}, which was applied already: add it at the end"]


def _as_step(migration: Any) -> Migration:
    name = migration.name if isinstance(migration, Migration) else getattr(migration, "__name__", None)
    function = migration.function if isinstance(migration, Migration) else migration
    if not callable(function) or isinstance(function, type) or inspect.iscoroutinefunction(function):
        raise TypeError(f"A migration is a function that takes a StoredForm and is not async, got {migration!r}.")
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise ValueError(
            f"A migration needs a name that stays the same, got {migration!r}: Migration('name', function)."
        )
    return Migration(name, function)


@dataclass(eq=False)
class Migrator:
    """Migrates one stored thread to the workflow of today, for one run."""

    migrations: Migrations
    workflow_name: str
    signature: Mapping[str, Any]
    hash_of: Callable[[Mapping[str, Any]], str]
    force: bool = False
    applied: list[str] = field(default_factory=list)
    """The migrations that it applied."""
    differences: list[str] = field(default_factory=list)
    """Why they did not continue the ones applied before; the caller forced it."""

    def __post_init__(self) -> None:
        self.names = self.migrations.names

    def is_applied(self, tree: Tree) -> bool:
        """Whether a checkpoint's tree has all migrations, and no others. Decoding checks the rest of its graph."""
        graph = tree.get("graph") if isinstance(tree, Mapping) else None
        return isinstance(graph, Mapping) and graph.get("migrations", []) == [*self.names]

    def migrate(self, tree: Tree, info: CheckpointInfo, codec: Codec, waiting: Sequence[StoredWaiting] = ()) -> Tree:
        """A migrated copy of the tree; migrates the waiting entries in place.

        Raises IncompatibleWorkflow or MigrationFailed.
        """
        graph = tree.get("graph") if isinstance(tree, Mapping) else None
        if not isinstance(graph, Mapping):
            return tree  # decoding it raises a better error
        applied, renamed = _read_applied(graph)
        if applied == list(self.names):
            return tree
        pending = [step for step in self.migrations.steps if step.name not in applied]
        self.refuse(self.migrations.find_differences(applied), info.checkpoint_id)
        tree = _copy(tree)
        for entry in waiting:
            self.catch_up(entry, renamed, applied[-1] if applied else None)
        for step in pending:
            due = [entry for entry in waiting if self._count(entry.migrated) <= self.names.index(step.name)]
            tree, types = self._apply(step, tree, info, codec, due)
            renamed += [(step.name, *names) for names in types]
        tree["graph"] |= {"migrations": list(self.names), "renamed_types": renamed}
        self.applied = [step.name for step in pending]
        return tree

    def _apply(
        self, step: Migration, tree: Tree, info: CheckpointInfo, codec: Codec, due: Sequence[StoredWaiting]
    ) -> tuple[Tree, list[tuple[str, str]]]:
        form = StoredForm(tree, info, due, self.signature, codec)
        try:
            result: Any = step.function(form)  # type: ignore[func-returns-value]  # users may return something
            if result is not None:
                raise TypeError(f"it returned {result!r}; a migration changes its argument and returns None")
            form._settle()
            graph = tree["graph"]
            if graph.get("graph_signature"):
                graph["graph_signature_hash"] = self.hash_of(graph["graph_signature"])
            after, *trees = _check_json([form.tree, *(entry.tree for entry in due)])
        except Exception as error:
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise MigrationFailed(step.name, info.checkpoint_id, info.thread_id, reason.rstrip(".")) from error
        for entry, migrated in zip(due, trees, strict=True):
            entry.tree, entry.migrated = migrated, step.name
        return after, form._renamed_types

    def catch_up(self, entry: StoredWaiting, renamed: Sequence[RenamedType], to: str | None) -> None:
        """Rename the types of an entry that older code wrote for a migrated thread."""
        count = self._count(entry.migrated)
        for name, old, new in renamed:
            if self._count(name) > count:
                rename_types([entry.tree], old, new)
        if self._count(to) > count:
            entry.migrated = to

    def refuse(self, differences: list[str], checkpoint_id: str) -> None:
        """Raises IncompatibleWorkflow, unless the caller forces the migration or no difference exists."""
        if differences and not self.force:
            raise IncompatibleWorkflow(checkpoint_id, self.workflow_name, differences)
        self.differences += [difference for difference in differences if difference not in self.differences]

    def _count(self, name: str | None) -> int:
        """How many migrations an entry with this mark has."""
        if name is None:
            return 0
        return self.names.index(name) + 1 if name in self.names else len(self.names)


def _read_applied(graph: Mapping[str, Tree]) -> tuple[list[str], list[RenamedType]]:
    names, renamed = graph.get("migrations", []), graph.get("renamed_types", [])
    is_sound = isinstance(names, list) and isinstance(renamed, list) and all(len(row) == 3 for row in renamed)
    if not is_sound or not all(isinstance(name, str) for name in (*names, *(part for row in renamed for part in row))):
        raise UnreadableValue("graph", "its list of migrations is not readable")
    return list(names), [tuple(row) for row in renamed]


def _copy(tree: Tree) -> Tree:
    """A copy without shared parts: a chunk that occurs twice is the same object in the tree."""
    return from_bytes(to_bytes(tree), "checkpoint")


def _check_json(trees: list[Tree]) -> list[Tree]:
    """A copy. Raises ValueError for a value that JSON would change."""
    copied: list[Tree] = _copy(trees)
    if copied != trees:
        raise ValueError("it left a value that JSON cannot hold, such as a tuple: use stored.encode(value)")
    return copied


def restore_type_names(tree: Tree, renamed: Sequence[RenamedType]) -> Tree:
    """A copy with the original names of its types: digests of recorded steps were made from these."""
    tree = _copy(tree)
    for _, old, new in reversed(renamed):
        rename_types([tree], new, old)
    return tree


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
        self.mark = migrator.names[-1] if migrator is not None and migrator.names else None
        """The last migration of the workflow, which marks new journal entries and inbox items."""
        self.must_rewrite = False
        """Whether the store still has the journal from before the migration."""

    @property
    def is_stale(self) -> bool:
        """Whether an entry lacks migrations."""
        if self.mark is None or not (self._opened.journal or self._opened.inbox):
            return False
        return any(entry.migrated != self.mark for entry in (*self._inbox.values(), *self._journal_entries()))

    def encode_entry(self, tree: dict[str, Tree]) -> bytes:
        """The body of a journal entry."""
        return to_bytes(tree if self.mark is None else {**tree, _MIGRATED: self.mark})

    def journal(self) -> dict[int, list[Tree]]:
        """The records since the head, by delivery id, in order."""
        if not self._opened.journal:
            return {}
        return {key: [entry.tree for entry in entries] for key, entries in self._journal.items()}

    def inbox(self, codec: Codec, renamed: Sequence[RenamedType]) -> dict[str, Any]:
        """Posted messages that no commit has consumed, by item id. `renamed`: the types that migrations renamed in the
        head."""
        if not self._opened.inbox:
            return {}
        return {key: self._decode_message(item, codec, renamed) for key, item in self._inbox.items()}

    def migrate(self, tree: Tree, info: CheckpointInfo, codec: Codec) -> Tree:
        """The head's tree for the workflow of today; also migrates the journal and the inbox."""
        if self._migrator is None or self._migrator.is_applied(tree):
            return tree
        waiting = self._journal_entries()
        after = self._migrator.migrate(tree, info, codec, [*waiting, *self._inbox.values()])
        self.must_rewrite = after is not tree and bool(waiting)
        return after

    def rewrite(self, unsettled: Sequence[int]) -> list[tuple[int, bytes]]:
        """The journal entries to store before a migrated head: those of these deliveries stay after its commit, so they
        must match it. Each replaces all entries of its delivery in the store."""
        self.must_rewrite = False
        journal = self._journal
        trees = {key: [entry.tree for entry in journal[key]] for key in dict.fromkeys(unsettled) if key in journal}
        return [(key, self.encode_entry({_ENTRIES: entries})) for key, entries in trees.items()]

    def _journal_entries(self) -> list[StoredWaiting]:
        return [entry for entries in self._journal.values() for entry in entries]

    @cached_property
    def _journal(self) -> dict[int, list[StoredWaiting]]:
        journal: dict[int, list[StoredWaiting]] = {}
        for entry in self._opened.journal:
            tree = self._decode_tree(entry.body, "its journal")
            mark = tree.pop(_MIGRATED, None) if type(tree) is dict else None
            if type(tree) is dict and _ENTRIES in tree:
                journal[entry.delivery_id] = [StoredWaiting(part, mark, entry.delivery_id) for part in tree[_ENTRIES]]
            else:
                journal.setdefault(entry.delivery_id, []).append(StoredWaiting(tree, mark, entry.delivery_id))
            self._check_mark(mark, "journal")
        return journal

    @cached_property
    def _inbox(self) -> dict[str, StoredWaiting]:
        inbox: dict[str, StoredWaiting] = {}
        for item in self._opened.inbox:
            if item.kind == MESSAGE:
                tree, mark = self._decode_tree(item.body, "its inbox"), None
                if type(tree) is dict and _MARKED in tree:
                    tree, mark = tree["message"], tree[_MARKED]
                inbox[item.item_id] = StoredWaiting(tree, mark)
                self._check_mark(mark, "inbox")
        return inbox

    def _decode_message(self, item: StoredWaiting, codec: Codec, renamed: Sequence[RenamedType]) -> Any:
        if self._migrator is not None:
            self._migrator.catch_up(item, renamed, self.mark)
        with self._damage_errors():
            return codec.decode(item.tree, "message")

    def _decode_tree(self, body: bytes, what: str) -> Any:
        with self._damage_errors():
            return from_bytes(body, what)

    def _check_mark(self, mark: str | None, where: str) -> None:
        if self._migrator is not None and mark is not None and mark not in self._migrator.names:
            reason = f"its {where} was written after migration {mark!r}, which is not among the workflow's"
            self._migrator.refuse([reason], str(self._opened.info))

    @contextmanager
    def _damage_errors(self) -> Iterator[None]:
        try:
            yield
        except UnreadableValue as error:
            raise DamagedCheckpoint(str(self._opened.info), str(error), self._opened.lease.thread_id) from error
