"""Names in a stored checkpoint, found wherever they stand: of executors, types and steps. Decodes nothing."""

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


# ---------------------------------------------------------------- types


def tagged_values(trees: Iterable[Tree]) -> Iterator[dict[str, Tree]]:
    """Every stored value that says its type. Without recursion: what users store may be nested deeply."""
    stack = list(trees)
    while stack:
        tree = stack.pop()
        if type(tree) is list:
            stack.extend(tree)
        elif type(tree) is dict:
            if type(tree.get("$type")) is str:
                yield tree
            stack.extend(tree.values())


def renamed_type(name: str, old: str, new: str) -> str:
    """With a class go those that are defined in it, and a generic one with its arguments."""
    if name == old:
        return new
    return new + name[len(old) :] if name.startswith((f"{old}.", f"{old}[")) else name


def rename_types(trees: Iterable[Tree], old: str, new: str) -> None:
    for tree in tagged_values(trees):
        if tree["$type"] == "type" and type(tree.get("name")) is str:
            tree["name"] = renamed_type(tree["name"], old, new)
        else:
            tree["$type"] = renamed_type(tree["$type"], old, new)


# ---------------------------------------------------------------- levels


def levels(tree: dict[str, Tree], path: Path = ()) -> Iterator[tuple[Path, dict[str, Tree]]]:
    """The thread's own workflow, and every sub-workflow in it."""
    yield path, tree
    for child in tree.get("children", ()):
        yield from levels(child, (*path, child["executor_id"]))


def levels_of_deliveries(tree: dict[str, Tree]) -> dict[int, Path]:
    """Where what is due, or waits, is due: a journal entry says only which delivery it is about."""
    found: dict[int, Path] = {}
    for path, level in levels(tree):
        for sent in level.get("messages", {}).values():
            found.update((one[0], path) for one in sent)
        found.update((one["delivery"][1][0], path) for one in level.get("suspended", ()))
    return found


def records_of(level: dict[str, Tree]) -> Iterator[dict[str, Tree]]:
    for one in level.get("suspended", ()):
        yield from one.get("records", ())


def pairs_of(tree: Tree) -> list[list[Any]]:
    """A dict as a codec stored it: plain, or with keys that JSON cannot hold. Raises ValueError for other things."""
    if type(tree) is dict and tree.get("$type") == "dict":
        return list(tree["items"])
    if type(tree) is dict and not any(key.startswith("$") for key in tree):
        return [[key, value] for key, value in tree.items()]
    raise ValueError("it was not stored as JSON, so that nothing in it can be renamed")


def dict_tree(pairs: Iterable[Iterable[Any]]) -> Tree:
    return {"$type": "dict", "items": [list(pair) for pair in pairs]}


# ---------------------------------------------------------------- executors


@dataclass(frozen=True)
class Renaming:
    """One executor, as one level knows it: by its id, or by the path to it."""

    old: str
    new: str
    has_inner: bool
    """Whether it runs a sub-workflow: paths into that begin with it."""

    def path(self, name: Any) -> Any:
        """An executor's id or path after the renaming. What is none stays as it is."""
        if name == self.old:
            return self.new
        is_inside = self.has_inner and type(name) is str and name.startswith(f"{self.old}/")
        return self.new + name[len(self.old) :] if is_inside else name

    def source(self, name: str) -> str:
        """A sender: an executor, the world outside, or the fan-in that joined what several sent."""
        if name.startswith(_FROM_OUTSIDE):
            return _FROM_OUTSIDE + str(self.path(name.removeprefix(_FROM_OUTSIDE)))
        return self.group(name) if name.startswith(_FAN_IN) else str(self.path(name))

    def group(self, name: str) -> str:
        """`FanInEdgeGroup/a,b->c`."""
        kind, slash, members = name.partition("/")
        found = rf"(?:^|(?<=,)|(?<=->)){re.escape(self.old)}(?=,|->|$)"
        return kind + slash + re.sub(found, lambda _: self.new, members)

    # ------------------------------------------------------------ in parts of a level

    def in_level(self, level: dict[str, Tree]) -> None:
        if "messages" in level:
            level["messages"] = {self.source(key): sent for key, sent in level["messages"].items()}
        for sent in level.get("messages", {}).values():
            for one in sent:
                self._in_delivery(one)
        for one in (*level.get("suspended", ()), *level.get("children", ())):
            source_id, delivery, _ = one["delivery"]
            one["delivery"][0] = self.source(source_id)
            self._in_delivery(delivery)
        for child in level.get("children", ()):
            child["executor_id"] = self.path(child["executor_id"])
        for record in records_of(level):
            self.in_recorded(record)
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

    def in_recorded(self, tree: dict[str, Tree]) -> None:
        """A record of a step, or what a delivery came to."""
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
        self.in_recorded(tree)
        self._in_values([tree])

    def _in_delivery(self, one: list[Tree]) -> None:
        """`[delivery_id, target_id, place, senders, request, in_place_of]`, cut off after what it has."""
        one[1] = self.path(one[1])
        if len(one) > 3 and one[3] is not None:
            one[3] = [self.path(sender) for sender in one[3]]
        if len(one) > 4 and one[4] is not None:
            self._in_request(one[4])
        if len(one) > 5:
            one[5] = self.path(one[5])

    def _in_request(self, request: dict[str, Tree]) -> None:
        request["source_executor_id"] = self.path(request["source_executor_id"])

    def _in_values(self, trees: Iterable[Tree]) -> None:
        """Questions of sub-workflows are messages that name their askers."""
        for tree in tagged_values(trees):
            if tree["$type"] in (_EVENT, _QUESTION):
                for field in ("executor_id", "source_executor_id"):
                    if field in tree:
                        tree[field] = self.path(tree[field])


def own_parts(level: dict[str, Tree]) -> list[Tree]:
    """All that a level holds but its sub-workflows, whose ids are others. Messages that started them are its own."""
    parts = [part for name, part in level.items() if name not in ("children", "graph")]
    return [*parts, *(child["delivery"] for child in level.get("children", ()))]


def rename_in_answers(level: dict[str, Tree], whole: Renaming) -> None:
    """Who waited in vain is named by the path from the thread's own workflow, at every level."""
    for answer in level.get("answered", {}).values():
        answer[2] = whole.path(answer[2])


# ---------------------------------------------------------------- steps


def rename_step(record: dict[str, Tree], old: str, new: str) -> None:
    """`name digest`, `name = key`, and the same behind ` in ` for a step that was called in another."""
    found = rf"(^| in ){re.escape(old)}(?= (?:= |[0-9a-f]{{16}}(?: |$)))"
    for part in ("key", "after", "within"):
        if record.get(part):
            record[part] = re.sub(found, lambda match: match.group(1) + new, record[part])
    if record.get("name") == old:
        record["name"] = new
