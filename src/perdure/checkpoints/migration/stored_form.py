"""StoredForm: one stored checkpoint as a migration sees it, a tree to change before it is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.checkpoints.migration.renaming import (
    Path,
    Renaming,
    dict_tree,
    levels,
    levels_of_deliveries,
    own_parts,
    pairs_of,
    records_of,
    rename_step,
    rename_type,
    rename_types,
    tagged_values,
)
from perdure.codec import Codec, Tree
from perdure.codecs.types import stored_name
from perdure.errors import did_you_mean
from perdure.records import CheckpointInfo


@dataclass(slots=True)
class StoredWaiting:
    """A journal entry or an inbox item, stored beside the head until a commit consumes it."""

    tree: Tree
    migrated: str | None
    """The last migration applied to it."""
    delivery_id: int | None = None
    """The delivery of a journal entry."""


class StoredLevel:
    """One workflow of a thread: the thread's own, or a sub-workflow that has not ended."""

    def __init__(self, tree: dict[str, Tree]) -> None:
        self.tree = tree
        """The whole level, in the stored format of the reference page."""
        self._state: dict[str, Tree] | None = None

    @property
    def state(self) -> dict[str, Tree]:
        """The shared state, encoded: strings, numbers, lists and dicts are plain; `encode` encodes other values."""
        if self._state is None:
            pairs = pairs_of(self.tree.get("state", {}))
            self._state = {key: value for key, value in pairs}  # noqa: C416  # mypy rejects lists as arguments of `dict`
        return self._state

    def memory(self, executor_id: str) -> dict[str, Tree]:
        """The memory of an executor, encoded: `saved` from its hook, `private` from its `ctx.private`."""
        memory: dict[str, Tree] = self.tree.setdefault("executors", {}).setdefault(executor_id, {})
        return memory

    def _settle(self) -> None:
        if self._state is not None:
            self.tree["state"] = dict_tree(self._state.items())
            self._state = None


class StoredForm(StoredLevel):
    """One stored checkpoint; a head has its journal and inbox too. A migration changes it in place.

    A path names an executor of a sub-workflow: `child/writer`. A type is a class, or a stored name such as
    `package.module:Name`: a deleted class has only its name.
    """

    def __init__(
        self,
        tree: dict[str, Tree],
        info: CheckpointInfo,
        waiting: Sequence[StoredWaiting],
        today: Mapping[str, Any],
        codec: Codec,
    ) -> None:
        super().__init__(tree)
        self.checkpoint_id = info.checkpoint_id
        self.thread_id = info.thread_id
        self.workflow_name = info.workflow_name
        self.timestamp = info.timestamp
        self._waiting = waiting
        self._today = today
        self._codec = codec
        self._children: list[StoredLevel] = []
        self._renamed_types: list[tuple[str, str]] = []

    @property
    def signature(self) -> dict[str, Any]:
        """The graph that made it: `start`, `executors` with their types, `edges`, and the same of `children`."""
        signature: dict[str, Any] = self.tree.setdefault("graph", {}).setdefault("graph_signature", {})
        return signature

    def encode(self, value: object) -> Tree:
        """The stored tree of a value. Raises UnsavableValue."""
        return self._codec.encode(value, "migration")

    def decode(self, tree: Tree) -> Any:
        """The value of a stored tree, with the types of today's workflow. Raises UnreadableValue."""
        return self._codec.decode(tree, "migration")

    def children(self, executor: str) -> list[StoredLevel]:
        """The sub-workflows of this executor that have not ended."""
        parents, executor_id, _ = self._find(executor)
        wanted = (*parents, executor_id)
        children = [StoredLevel(level) for path, level in levels(self.tree) if path == wanted]
        self._children += children
        return children

    def values(self, of_type: type | str) -> list[dict[str, Tree]]:
        """The fields of every stored value of a type, in any part: change them in place."""
        name = _type_name(of_type)
        return [tree for tree in tagged_values(self._everything()) if tree["$type"] == name]

    def rename_executor(self, old: str, new: str) -> None:
        """Rename an executor everywhere: in deliveries, requests, memories, and the graph's signature.

        Its class may have changed too. Raises ValueError if no executor is called `old`, or one is already called
        `new`.
        """
        self._settle()
        parents, executor_id, signature = self._find(old)
        parent = old[: len(old) - len(executor_id)]
        new_id = new[len(parent) :] if parent and new.startswith(parent) else new
        if not new_id or new_id in signature["executors"]:
            reason = "the graph has such an executor already" if new_id else "an id is not empty"
            raise ValueError(f"{old!r} cannot become {new!r}: {reason}")
        has_inner = executor_id in signature.get("children", {})
        renamings: dict[Path | None, Renaming] = {}  # of the levels that lead to it
        for depth in range(len(parents) + 1):
            outer = "".join(f"{parent}/" for parent in parents[depth:])
            renamings[parents[:depth]] = Renaming(outer + executor_id, outer + new_id, has_inner)
        for _, level in levels(self.tree):
            for answer in level.get("answered", {}).values():  # expired ones name it by its whole path
                answer[2] = renamings[()].path(answer[2])
        paths = levels_of_deliveries(self.tree)
        for entry in self._waiting:
            if (renaming := renamings.get(paths.get(entry.delivery_id))) is not None:
                renaming.in_journal(entry.tree)
        for path, level in [*levels(self.tree)]:
            if path in renamings:
                renamings[path].in_level(level)
        today: Any = self._today
        for parent in parents:
            today = today.get("children", {}).get(parent, {})
        self._rename_in_signature(signature, executor_id, new_id, today.get("executors", {}).get(new_id))

    def rename_type(self, old: type | str, new: type | str) -> None:
        """Rename a type everywhere: in values, response types, the journal, the inbox, and executors of this class."""
        name, new_name = _type_name(old), _type_name(new)
        rename_types(self._everything(), name, new_name)
        for _, signature in _signatures(self.signature):
            kinds = signature.get("executors", {})
            signature["executors"] = {key: rename_type(kind, name, new_name) for key, kind in kinds.items()}
        self._renamed_types.append((name, new_name))

    def rename_step(self, old: str, new: str) -> None:
        """Rename a step in all records, so that a run replays it under its new name."""
        for _, level in levels(self.tree):
            for record in records_of(level):
                rename_step(record, old, new)
        for entry in self._waiting:
            if entry.delivery_id is not None and "kind" in entry.tree:
                rename_step(entry.tree, old, new)

    def drop_executor(self, executor: str) -> None:
        """Delete an executor with its due deliveries and its memory. Raises ValueError for the start executor, and for
        one that a fan-in waits for."""
        self._settle()
        parents, executor_id, signature = self._find(executor)
        if signature.get("start") == executor_id:
            raise ValueError(f"{executor!r} is the start executor: rename it, or set signature['start'] first")
        for path, level in [*levels(self.tree)]:
            below = "/".join((*parents[len(path) :], executor_id, ""))
            if path == parents:
                _drop(level, executor_id)
            if path == parents[: len(path)]:
                requests = level.get("requests", ())
                level["requests"] = [
                    each for each in requests if not f"{each['source_executor_id']}/".startswith(below)
                ]
        signature["edges"] = [
            line
            for line in signature["edges"]
            if executor_id not in _ends(line.partition(": ")[2], signature["executors"])[:2]
        ]
        del signature["executors"][executor_id]
        if signature.get("children", {}).pop(executor_id, None) is not None and not signature["children"]:
            del signature["children"]

    def _settle(self) -> None:
        super()._settle()
        for child in self._children:
            child._settle()

    def _everything(self) -> list[Tree]:
        self._settle()
        inner = [part for _, level in levels(self.tree) for part in own_parts(level)]
        return [*inner, *(entry.tree for entry in self._waiting)]

    def _find(self, executor: str) -> tuple[Path, str, dict[str, Any]]:
        """The level of an executor, its id there, and the signature of that level. Ids may contain a slash."""
        parents: list[str] = []
        signature, rest = self.signature, executor
        while rest not in signature.get("executors", {}):
            children = signature.get("children", {})
            outer = next((child for child in children if rest.startswith(f"{child}/")), None)
            if outer is None:
                named = _signatures(self.signature)
                paths = [f"{path}{name}" for path, level in named for name in level.get("executors", ())]
                raise ValueError(f"the graph has no executor {executor!r}{did_you_mean(executor, paths)}")
            parents.append(outer)
            signature, rest = children[outer], rest[len(outer) + 1 :]
        return tuple(parents), rest, signature

    def _rename_in_signature(self, signature: dict[str, Any], old: str, new: str, kind: str | None) -> None:
        executors, edges = signature["executors"], []
        for line in signature.get("edges", ()):
            kind_of_edge, _, edge = line.partition(": ")
            source, target, condition = _ends(edge, executors)
            ends = "->".join(new if end == old else end for end in (source, target)) if source else ""
            edges.append(f"{kind_of_edge}: {ends}{condition}")
        signature["executors"] = {new if key == old else key: name for key, name in executors.items()}
        if kind is not None:  # the executor of today replaces the old one
            signature["executors"][new] = kind
        signature["edges"] = sorted(edges)
        if signature.get("start") == old:
            signature["start"] = new
        if old in signature.get("children", {}):
            signature["children"][new] = signature["children"].pop(old)


def _type_name(cls: type | str) -> str:
    return cls if isinstance(cls, str) else stored_name(cls)


def _signatures(signature: dict[str, Any], path: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    """The signature and those of its sub-workflows, each after the path that its executors begin with."""
    yield path, signature
    for executor_id, child in signature.get("children", {}).items():
        yield from _signatures(child, f"{path}{executor_id}/")


def _ends(edge: str, executors: Iterable[str]) -> tuple[str, str, str]:
    """Source, target and condition of `source->target if condition`. Ids may look like any part of it: a match without
    a condition comes first, then the longest ids."""
    matches = [
        (rest != target, -len(source), -len(target), source, target)
        for source in executors
        if edge.startswith(f"{source}->")
        for rest in (edge[len(source) + 2 :],)
        for target in executors
        if rest == target or rest.startswith(f"{target} if ")
    ]
    if not matches:
        return "", "", edge
    *_, source, target = min(matches)
    return source, target, edge[len(source) + 2 + len(target) :]


def _drop(level: dict[str, Tree], executor_id: str) -> None:
    """Delete the due deliveries and the memory of an executor of this level."""
    buffers = pairs_of(level.get("buffers", {}))
    renaming = Renaming(executor_id, "", has_inner=False)
    for group, held in buffers:
        is_target = group.endswith(f"->{executor_id}")
        if pairs_of(held) and renaming.group(group) != group and not is_target:
            raise ValueError(f"a fan-in that waits for {executor_id!r} holds messages of others")
    if buffers:
        level["buffers"] = dict_tree(pair for pair in buffers if not pair[0].endswith(f"->{executor_id}"))
    for source_id, sent in level.get("messages", {}).items():
        level["messages"][source_id] = [delivery for delivery in sent if delivery[1] != executor_id]
    level["suspended"] = [each for each in level.get("suspended", ()) if each["delivery"][1][1] != executor_id]
    level["children"] = [each for each in level.get("children", ()) if each["executor_id"] != executor_id]
    level.get("executors", {}).pop(executor_id, None)
