"""Migrations: named steps that bring what is stored to what the workflow of today expects, each applied once.

A checkpoint, an entry of the journal and an item of the inbox each say which migrations they have behind them. The
others are applied in memory when a thread is opened, and stored with the next commit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.checkpoints.migration.renaming import rename_types
from perdure.checkpoints.migration.stored_form import StoredForm, StoredWaiting
from perdure.codec import Codec, Tree
from perdure.codecs.walk import from_bytes, to_bytes
from perdure.errors import IncompatibleWorkflow, MigrationFailed, UnreadableValue, did_you_mean
from perdure.records import CheckpointInfo

RenamedType = tuple[str, str, str]
"""A migration, and the type that it renamed: its old name and its new one."""


@dataclass(frozen=True)
class Migration:
    """One step, and the name under which a checkpoint remembers that it was applied."""

    name: str
    function: Callable[[StoredForm], None]


AnyMigration: TypeAlias = "Migration | Callable[[StoredForm], None]"
"""As users write them: a function's own name will do."""


class Migrations:
    """The steps of a workflow, in order. Raises TypeError or ValueError for what is not such a list."""

    def __init__(self, given: Iterable[AnyMigration] = ()) -> None:
        self.steps = tuple(_step(one) for one in given)
        self.names = tuple(one.name for one in self.steps)
        for name in self.names:
            if self.names.count(name) > 1:
                raise ValueError(f"Two migrations are called {name!r}. A checkpoint remembers them by their names.")

    def after(self, applied: Sequence[str]) -> tuple[list[Migration], list[str]]:
        """(those that a checkpoint has not behind it, why the list does not continue what was applied)."""
        pending = [one for one in self.steps if one.name not in applied]
        count = len(applied)
        return pending, [] if self.names[:count] == tuple(applied) else self._differences(applied)

    def _differences(self, applied: Sequence[str]) -> list[str]:
        unknown = [name for name in applied if name not in self.names]
        if unknown:
            return [
                f"migration {name!r} was applied to it, and is not among the workflow's{did_you_mean(name, self.names)}"
                for name in unknown
            ]
        known = [name for name in self.names if name in applied]
        if known != list(applied):
            then, now = (", ".join(map(repr, names)) for names in (applied, known))
            return [f"its migrations were applied in the order {then}, and are listed as {now}"]
        early = next(name for name in self.names if name not in applied)
        return [f"migration {early!r} stands before {applied[-1]!r}, which was applied already: add it at the end"]


def _step(given: Any) -> Migration:
    name = given.name if isinstance(given, Migration) else getattr(given, "__name__", None)
    function = given.function if isinstance(given, Migration) else given
    if not callable(function) or isinstance(function, type) or inspect.iscoroutinefunction(function):
        raise TypeError(f"A migration is a function that takes a StoredForm and is not async, got {given!r}.")
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise ValueError(f"A migration needs a name that stays the same, got {given!r}: Migration('name', function).")
    return Migration(name, function)


class Migrator:
    """Brings what is stored of one thread to the workflow of today, for one run."""

    def __init__(
        self,
        migrations: Migrations,
        workflow_name: str,
        signature: Mapping[str, Any],
        hash_of: Callable[[Mapping[str, Any]], str],
        *,
        force: bool = False,
    ) -> None:
        self.names = migrations.names
        self.applied: list[str] = []
        """Those that it had to apply."""
        self.differences: list[str] = []
        """Why they did not continue what had been applied before; the caller forced it."""
        self._migrations = migrations
        self._workflow_name = workflow_name
        self._signature = signature
        self._hash_of = hash_of
        self._force = force

    @property
    def mark(self) -> str | None:
        """What is stored beside the head from now on has this one and all before it behind it."""
        return self.names[-1] if self.names else None

    def migrated(self, tree: Tree, info: CheckpointInfo, codec: Codec, waiting: Sequence[StoredWaiting] = ()) -> Tree:
        """The tree as the workflow of today would have stored it, and what waits beside it likewise.

        The tree given is left as it is. Raises IncompatibleWorkflow or MigrationFailed.
        """
        graph = tree.get("graph") if isinstance(tree, Mapping) else None
        if not isinstance(graph, Mapping):
            return tree  # decoding it says what it is
        applied, renamed = _stored(graph)
        if applied == list(self.names):
            return tree
        pending, differences = self._migrations.after(applied)
        self._refuse(differences, info.checkpoint_id)
        tree = _copy(tree)
        for one in waiting:
            self.catch_up(one, renamed, applied[-1] if applied else None)
        for step in pending:
            due = [one for one in waiting if self._place(one.migrated) <= self.names.index(step.name)]
            tree, types = self._apply(step, tree, info, codec, due)
            renamed += [(step.name, *names) for names in types]
        tree["graph"] |= {"migrations": list(self.names), "renamed_types": renamed}
        self.applied = [step.name for step in pending]
        return tree

    def _apply(
        self, step: Migration, tree: Tree, info: CheckpointInfo, codec: Codec, due: Sequence[StoredWaiting]
    ) -> tuple[Tree, list[tuple[str, str]]]:
        form = StoredForm(tree, info, due, self._signature, codec)
        try:
            given: Any = step.function(form)  # type: ignore[func-returns-value]  # what it says, and what it does
            if given is not None:
                raise TypeError(f"it gave {given!r}; a migration changes what it is given, and gives nothing")
            form._settle()
            graph = tree["graph"]
            if graph.get("graph_signature"):
                graph["graph_signature_hash"] = self._hash_of(graph["graph_signature"])
            after, *trees = _plain([form.tree, *(one.tree for one in due)])
        except Exception as error:
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise MigrationFailed(step.name, info.checkpoint_id, info.thread_id, reason.rstrip(".")) from error
        for one, its in zip(due, trees, strict=True):
            one.tree, one.migrated = its, step.name
        return after, form._renamed_types

    # ------------------------------------------------------------ what waits beside the head

    def catch_up(self, one: StoredWaiting, renamed: Sequence[RenamedType], to: str | None) -> None:
        """Something that came from older code, for a thread that has migrations behind it: its types go their way."""
        is_at = self._place(one.migrated)
        for name, old, new in renamed:
            if self._place(name) > is_at:
                rename_types([one.tree], old, new)
        if self._place(to) > is_at:
            one.migrated = to

    def check_mark(self, mark: str, where: str, checkpoint_id: str) -> None:
        """Raises IncompatibleWorkflow if the workflow does not have this migration."""
        if mark not in self.names:
            self._refuse(
                [f"its {where} was written after migration {mark!r}, which is not among the workflow's"], checkpoint_id
            )

    def _refuse(self, differences: list[str], checkpoint_id: str) -> None:
        if differences and not self._force:
            raise IncompatibleWorkflow(checkpoint_id, self._workflow_name, differences)
        self.differences += [one for one in differences if one not in self.differences]

    def _place(self, name: str | None) -> int:
        """How many migrations it has behind it that was marked with this name."""
        if name is None:
            return 0
        return self.names.index(name) + 1 if name in self.names else len(self.names)


def _stored(graph: Mapping[str, Tree]) -> tuple[list[str], list[RenamedType]]:
    names, renamed = graph.get("migrations", []), graph.get("renamed_types", [])
    is_sound = isinstance(names, list) and isinstance(renamed, list) and all(len(one) == 3 for one in renamed)
    if not is_sound or not all(isinstance(name, str) for name in (*names, *(one for row in renamed for one in row))):
        raise UnreadableValue("graph", "what it says of migrations is not readable")
    return list(names), [tuple(row) for row in renamed]


def _copy(tree: Tree) -> Tree:
    """One in which nothing stands in two places: chunks that occur twice are read once."""
    return from_bytes(to_bytes(tree), "checkpoint")


def _plain(trees: list[Tree]) -> list[Tree]:
    """The same, if it is JSON. Raises ValueError for what would come back as something else."""
    copied: list[Tree] = _copy(trees)
    if copied != trees:
        raise ValueError("it left something that JSON does not hold, such as a tuple: use stored.encode(value)")
    return copied


def as_first_named(tree: Tree, renamed: Sequence[RenamedType]) -> Tree:
    """The tree with the names that its types had at first: what is found by a digest stays found."""
    tree = _copy(tree)
    for _, old, new in reversed(renamed):
        rename_types([tree], new, old)
    return tree
