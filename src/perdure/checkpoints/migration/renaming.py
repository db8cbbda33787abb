"""Renaming executors, types and steps in all parts of a stored checkpoint. Decodes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perdure.codec import Tree

Path = tuple[str, ...]
"""The executors that lead to a level: () is the thread's own workflow, ("child",) the sub-workflow of `child`."""

_EVENT = "perdure:WorkflowEvent"
_QUESTION = "perdure:SubWorkflowRequestMessage"
_FROM_OUTSIDE = "internal:"
_FAN_IN = "FanInEdgeGroup/"


def tagged_values(trees: Iterable[Tree]) -> Iterator[dict[str, Tree]]:
    """Every stored value with a `$type`. Without recursion: users' values may be nested deeply."""
    stack = list(trees)
    while stack:
        tree = stack.pop()
        if type(tree) is list:
            stack.extend(tree)
        elif type(tree) is dict:
            if type(tree.get("$type")) is str:
                yield tree
            stack.extend(tree.values())


def rename_type(name: str, old: str, new: str) -> str:
    """The name after the renaming; classes defined in the class, and its generic forms, are renamed too."""
    if name == old:
        return new
    return new + name[len(old) :] if name.startswith((f"{old}.", f"{old}[")) else name


def rename_types(trees: Iterable[Tree], old: str, new: str) -> None:
    for tree in tagged_values(trees):
        if tree["$type"] == "type" and type(tree.get("name")) is str:
            tree["name"] = rename_type(tree["name"], old, new)
        else:
            tree["$type"] = rename_type(tree["$type"], old, new)


def levels(tree: dict[str, Tree], path: Path = ()) -> Iterator[tuple[Path, dict[str, Tree]]]:
    """The thread's own workflow, and every sub-workflow in it."""
    yield path, tree
    for child in tree.get("children", ()):
        yield from levels(child, (*path, child["executor_id"]))


def levels_of_deliveries(tree: dict[str, Tree]) -> dict[int | None, Path]:
    """The level of each due or suspended delivery: a journal entry names only its delivery."""
    paths: dict[int | None, Path] = {}
    for path, level in levels(tree):
        for sent in level.get("messages", {}).values():
            paths.update((delivery[0], path) for delivery in sent)
        paths.update((suspended["delivery"][1][0], path) for suspended in level.get("suspended", ()))
    return paths


def records_of(level: dict[str, Tree]) -> Iterator[dict[str, Tree]]:
    for suspended in level.get("suspended", ()):
        yield from suspended.get("records", ())


def pairs_of(tree: Tree) -> list[list[Any]]:
    """The items of an encoded dict: plain, or with keys that JSON cannot hold. Raises ValueError for other trees."""
    if type(tree) is dict and tree.get("$type") == "dict":
        return list(tree["items"])
    if type(tree) is dict and not any(key.startswith("$") for key in tree):
        return [[key, value] for key, value in tree.items()]
    raise ValueError("it was not stored as JSON, so nothing in it can be renamed")


def dict_tree(pairs: Iterable[Iterable[Any]]) -> Tree:
    return {"$type": "dict", "items": [list(pair) for pair in pairs]}


@dataclass(frozen=True)
class Renaming:
    """The renaming of one executor, as seen from one level: its id, or the path to it."""

    old: str
    new: str
    has_inner: bool
    """Whether it runs a sub-workflow: paths into that start with its id."""

    def path(self, name: Any) -> Any:
        """An executor's id or path after the renaming. Other values stay."""
        if name == self.old:
            return self.new
        is_inside = self.has_inner and type(name) is str and name.startswith(f"{self.old}/")
        return self.new + name[len(self.old) :] if is_inside else name

    def source(self, name: str) -> str:
        """A sender after the renaming: an executor, an outside input, or a fan-in."""
        if name.startswith(_FROM_OUTSIDE):
            return _FROM_OUTSIDE + str(self.path(name.removeprefix(_FROM_OUTSIDE)))
        return self.group(name) if name.startswith(_FAN_IN) else str(self.path(name))

    def group(self, name: str) -> str:
        """`FanInEdgeGroup/a,b->c`."""
        kind, slash, members = name.partition("/")
        pattern = rf"(?:^|(?<=,)|(?<=->)){re.escape(self.old)}(?=,|->|$)"
        return kind + slash + re.sub(pattern, lambda _: self.new, members)

    def in_level(self, level: dict[str, Tree]) -> None:
        if "messages" in level:
            level["messages"] = {self.source(key): sent for key, sent in level["messages"].items()}
        for sent in level.get("messages", {}).values():
            for delivery in sent:
                self._in_delivery(delivery)
        for part in (*level.get("suspended", ()), *level.get("children", ())):
            source_id, delivery, _ = part["delivery"]
            part["delivery"][0] = self.source(source_id)
            self._in_delivery(delivery)
        for child in level.get("children", ()):
            child["executor_id"] = self.path(child["executor_id"])
        for record in records_of(level):
            self.in_record(record)
        for request in level.get("requests", ()):
            self._in_request(request)
        if "executors" in level:
            level["executors"] = {self.path(key): memory for key, memory in level["executors"].items()}
        if "buffers" in level:
            groups = ((self.group(key), pairs_of(held)) for key, held in pairs_of(level["buffers"]))
            level["buffers"] = dict_tree(
                (key, dict_tree((self.path(sender), sent) for sender, sent in held)) for key, held in groups
            )
        for output in level.get("outputs", ()):
            output[1] = self.path(output[1])
        self._in_values(own_parts(level))

    def in_record(self, tree: dict[str, Tree]) -> None:
        """Rename in a record of a step, or in the outcome of a delivery."""
        effects = tree.get("effects") if "kind" in tree else tree
        if effects:
            for send in effects.get("sends", ()):
                send[1] = self.path(send[1])
            for request in effects.get("requests", ()):
                self._in_request(request)
            for _, request in effects.get("answers", ()):
                self._in_request(request)
            if "forwarded_to" in effects:
                effects["forwarded_to"] = self.path(effects["forwarded_to"])

    def in_journal(self, tree: dict[str, Tree]) -> None:
        self.in_record(tree)
        self._in_values([tree])

    def _in_delivery(self, delivery: list[Tree]) -> None:
        """`[delivery_id, target_id, payload_index, senders, request, in_place_of]`, cut off after its last part."""
        delivery[1] = self.path(delivery[1])
        if len(delivery) > 3 and delivery[3] is not None:
            delivery[3] = [self.path(sender) for sender in delivery[3]]
        if len(delivery) > 4 and delivery[4] is not None:
            self._in_request(delivery[4])
        if len(delivery) > 5:
            delivery[5] = self.path(delivery[5])

    def _in_request(self, request: dict[str, Tree]) -> None:
        request["source_executor_id"] = self.path(request["source_executor_id"])

    def _in_values(self, trees: Iterable[Tree]) -> None:
        """Rename in requests of sub-workflows, which are messages that name the asking executor."""
        for tree in tagged_values(trees):
            if tree["$type"] in (_EVENT, _QUESTION):
                for field in ("executor_id", "source_executor_id"):
                    if field in tree:
                        tree[field] = self.path(tree[field])


def own_parts(level: dict[str, Tree]) -> list[Tree]:
    """The parts of a level without its sub-workflows, which have their own ids; with the messages that started them."""
    parts = [part for name, part in level.items() if name not in ("children", "graph")]
    return [*parts, *(child["delivery"] for child in level.get("children", ()))]


def rename_step(record: dict[str, Tree], old: str, new: str) -> None:
    """Rename in keys: `name digest`, `name = key`, and the same after ` in ` for a step inside of another."""
    pattern = rf"(^| in ){re.escape(old)}(?= (?:= |[0-9a-f]{{16}}(?: |$)))"
    for part in ("key", "after", "within"):
        if record.get(part):
            record[part] = re.sub(pattern, lambda match: match.group(1) + new, record[part])
    if record.get("name") == old:
        record["name"] = new
