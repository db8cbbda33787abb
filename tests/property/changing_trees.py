"""Trees of plain JSON that change as users' states do, step by step, around all sizes at which they are cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from perdure.checkpoints.delta.chunk_types import MAX_NODE, MAX_TEXT, MIN_NODE, MIN_TEXT
from perdure.checkpoints.delta.chunks import LONG_TEXT, SMALL, SMALL_ROOT, WHOLE
from perdure.codec import Tree

SIZES = sorted(
    {0, 1, 9, 40, 60, 16_000}
    | {edge + by for edge in (SMALL, SMALL_ROOT, WHOLE, LONG_TEXT, MIN_TEXT, MAX_TEXT) for by in (-2, 0, 1)}
    | {edge + by for edge in (MIN_NODE, MAX_NODE) for by in (-1, 0, 1)}
)
SCALARS: list[Tree] = [None, True, False, 0, 1, -1, 2**63 - 1, 0.0, -0.0, 1.0, 1e300, "", "1", "x", "\x00é\U0001f600"]
LOOKALIKES: list[Tree] = [1, True, 1.0, "1", 0, False, 0.0, -0.0, None, [], {}, "", [1], [True], [1.0], [-0.0]]
_KINDS = (("text",), ("text", "again"), ("list", "again"), ("scalar", "text", "text", "list", "dict", "again"))
KEYS = ["a", "b", 'c"', "ключ", "$ref", "$dict", "$plain", "$of", "depth"]


def _prose(size: int) -> str:
    random = Random(7)
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyzABC013é", k=random.randint(1, 9))) for _ in range(500)]
    ends = [" "] * 12 + [". ", "\n", ", "]
    return "".join(random.choice(words) + random.choice(ends) for _ in range(size // 5))[:size]


PROSE = _prose(60_000)


class ChangingTree:
    """`tree` is never changed in place: each `change` puts another there, which shares what did not change."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.tree: dict[str, Tree] = {"version": "1", "counters": [1, 2], "state": {}, "outputs": []}
        self._attic: list[Tree] = []
        """Values that stood somewhere once: they come back as the same objects."""
        self._path: list[str | int] = []
        """Where the last change was."""
        self._kinds = random.choice(_KINDS)
        self._keys = random.sample(KEYS, random.choice((1, 2, 6)))
        for key in self._keys[:3]:
            self.tree["state"][key] = self.value()

    def change(self) -> None:
        part = self._random.choice(("state", "state", "state", "outputs"))
        self.tree = {**self.tree, part: self._changed(self.tree[part], 0)}
        if len(msgspec.json.encode(self.tree)) > 150_000:
            self.tree = {**self.tree, part: self.value(2)}  # more would only take time
        if self._random.random() < 0.3:
            self.tree = msgspec.json.decode(msgspec.json.encode(self.tree))  # equal, and no object is the same
        del self._attic[:-30]

    def value(self, depth: int = 0) -> Tree:
        random = self._random
        kind = random.choice(self._kinds if depth < 3 else ("scalar", "text"))
        if kind == "scalar":
            return random.choice(SCALARS)
        if kind == "text":
            return self._text()
        if kind == "again" and self._attic:
            return random.choice(self._attic)
        if kind == "dict":
            keys = (
                self._keys if random.random() < 0.7 else [f"key {index}" for index in range(random.choice((3, 40, 90)))]
            )
            return {key: self.value(depth + 1) if random.random() < 0.3 else key * 3 for key in keys}
        return self._list(depth)

    def _text(self) -> str:
        size = self._random.choice(self._random.choice((SIZES, SIZES[-6:])))
        if self._random.random() < 0.15:
            return self._random.choice("xé\n") * size
        start = self._random.choice((0, 0, 100, self._random.randrange(30_000)))  # many begin alike
        return PROSE[start : start + size]

    def _list(self, depth: int) -> list[Tree]:
        random = self._random
        count = random.choice((0, 1, 3, 17, 60, 150))
        kind = random.choice(("ints", "texts", "same", "dicts", "lookalikes", "mixed"))
        if kind == "ints":
            return list(range(count * 3))
        if kind == "texts":
            return [PROSE[index * 37 : index * 37 + random.choice((5, 50, 600))] for index in range(count)]
        if kind == "same":
            return [self.value(depth + 1)] * min(count, 17)
        if kind == "dicts":
            return [{"role": "user", "index": index, "text": PROSE[index : index + 90]} for index in range(count)]
        if kind == "lookalikes":
            return random.choices(LOOKALIKES, k=count * 2)
        return [self.value(depth + 1) for _ in range(min(count, 5))]

    # ------------------------------------------------------------ changes

    def _changed(self, value: Tree, depth: int) -> Tree:
        """The value with one change, somewhere in it; often where the last one was."""
        random = self._random
        self._attic.append(value)
        places: list[Any] = []
        if isinstance(value, list | dict) and random.random() < (0.5 if depth else 0.85):
            places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if places:
            again: Any = self._path[depth] if depth < len(self._path) else None
            place = again if again in places and random.random() < 0.8 else random.choice(places)
            self._path[depth:] = [place]
            made = value.copy()
            made[place] = self._changed(value[place], depth + 1)
            return made
        changes = _CHANGES.get(type(value))
        if changes is None or random.random() < 0.05:
            return self.value(depth)  # mostly of another type
        return random.choice(changes)(self, value, depth)

    def _change_text(self, value: str, depth: int) -> Tree:
        random, at = self._random, self._random.randint(0, len(value))
        other = random.choice([text for text in self._attic if type(text) is str] or [""])
        return random.choice(
            (
                value + self._text(),
                value + random.choice("x\n"),
                value[:at] + "inserted" + value[at:],
                value[:at] + value[at + random.randint(1, 3000) :],
                value[: random.choice(SIZES)],
                random.choice(SCALARS),
                other,
                other,
                other + self._text(),
            )
        )

    def _append(self, value: list[Tree], depth: int) -> Tree:
        return [*value, self.value(depth + 1)]

    def _extend(self, value: list[Tree], depth: int) -> Tree:
        return value + [self._random.choice(SCALARS) for _ in range(self._random.randint(1, 60))]

    def _insert(self, value: list[Tree], depth: int) -> Tree:
        at = self._random.randint(0, len(value))
        return [*value[:at], self.value(depth + 1), *value[at:]]

    def _delete(self, value: list[Tree], depth: int) -> Tree:
        at = self._random.randint(0, len(value))
        return value[:at] + value[at + self._random.choice((1, 1, 20)) :]

    def _slide(self, value: list[Tree], depth: int) -> Tree:
        by = self._random.choice((1, 1, 7))
        return value[by:] + [self.value(depth + 1) for _ in range(min(by, 2))]

    def _look_alike(self, value: list[Tree], depth: int) -> Tree:
        return [self._random.choice(LOOKALIKES) if item in LOOKALIKES else item for item in value]

    def _reverse(self, value: list[Tree], depth: int) -> Tree:
        return value[::-1]

    def _set(self, value: dict[str, Tree], depth: int) -> Tree:
        return {**value, self._random.choice(self._keys): self.value(depth + 1)}

    def _remove(self, value: dict[str, Tree], depth: int) -> Tree:
        gone = self._random.choice([*value, *self._keys])
        self._attic.append(value.get(gone))
        return {key: item for key, item in value.items() if key != gone}

    def _put_back(self, value: dict[str, Tree], depth: int) -> Tree:
        return {**value, self._random.choice(self._keys): self._random.choice(self._attic or [None])}

    def _move(self, value: dict[str, Tree], depth: int) -> Tree:
        old, new = self._random.choice([*value, *self._keys]), self._random.choice(self._keys)
        kept = {key: item for key, item in value.items() if key != old}
        return {**kept, new: value.get(old)}

    def _double(self, value: dict[str, Tree], depth: int) -> Tree:
        return {**value, self._random.choice(self._keys): value.get(self._random.choice([*value, *self._keys]))}

    def _shrink(self, value: dict[str, Tree], depth: int) -> Tree:
        return dict(list(value.items())[: self._random.randint(0, 4)])

    def _fill(self, value: dict[str, Tree], depth: int) -> Tree:
        return {**value, **{f"key {index}": index for index in range(self._random.choice((20, 80)))}}


_Change = Callable[[ChangingTree, Any, int], Tree]
_LIST: tuple[_Change, ...] = (
    *(ChangingTree._append, ChangingTree._append, ChangingTree._extend, ChangingTree._insert, ChangingTree._delete),
    *(ChangingTree._slide, ChangingTree._look_alike, ChangingTree._reverse),
)
_DICT: tuple[_Change, ...] = (
    *(ChangingTree._set, ChangingTree._set, ChangingTree._remove, ChangingTree._put_back, ChangingTree._move),
    *(ChangingTree._double, ChangingTree._shrink, ChangingTree._fill),
)
_CHANGES: dict[type, tuple[_Change, ...]] = {str: (ChangingTree._change_text,), list: _LIST, dict: _DICT}
