"""Private state inside of steps: what each of them touched, by key, so that steps that run at once keep apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from perdure.graph.comparison import same_structure
from perdure.isolation import isolated

_ABSENT: Any = type("Absent", (), {})()


class PrivateView(MutableMapping[str, Any]):
    """`ctx.private` where steps may run: the same dict, and `touch` is told of each key before it is used."""

    def __init__(self, private: dict[str, Any], touch: Callable[[str], None]) -> None:
        self._private = private
        self._touch = touch

    def __getitem__(self, key: str) -> Any:
        self._touch(key)
        return self._private[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._touch(key)
        self._private[key] = value

    def __delitem__(self, key: str) -> None:
        self._touch(key)
        del self._private[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._private))

    def __len__(self) -> int:
        return len(self._private)

    def __repr__(self) -> str:
        return repr(self._private)


def touched(private: Mapping[str, Any], key: str) -> Any:
    """What a key is before it is used, to be compared with later."""
    return isolated(private[key]) if key in private else _ABSENT


def changes(before: Mapping[str, Any], private: Mapping[str, Any]) -> dict[str, Any] | None:
    """What became of the keys that were touched, as it is recorded; None if they are as they were."""
    changed = {key: one for key, one in before.items() if not same_structure(private.get(key, _ABSENT), one)}
    if not changed:
        return None
    return {
        "changed": {key: isolated(private[key]) for key in changed if key in private},
        "gone": [key for key in changed if key not in private],
    }


def make_again(private: MutableMapping[str, Any], recorded: Mapping[str, Any]) -> None:
    private.update(isolated(recorded["changed"]))
    for key in recorded["gone"]:
        private.pop(key, None)


def undo(private: MutableMapping[str, Any], before: Mapping[str, Any]) -> None:
    """Make the keys that were touched what they were."""
    for key, value in before.items():
        if value is _ABSENT:
            private.pop(key, None)
        else:
            private[key] = value
