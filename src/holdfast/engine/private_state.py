"""What a step changed in its executor's private state: by key, so that steps that run at once keep apart."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.graph.comparison import same_structure
from holdfast.graph.isolation import isolated


@dataclass(frozen=True)
class PrivateChanges:
    changed: dict[str, Any] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)

    @classmethod
    def between(cls, then: Mapping[str, Any], now: Mapping[str, Any]) -> PrivateChanges:
        changed = {key: one for key, one in now.items() if key not in then or not same_structure(one, then[key])}
        return cls(isolated(changed), [key for key in then if key not in now])

    def undone(self, then: Mapping[str, Any]) -> PrivateChanges:
        """What makes it again what it was then."""
        back = {key: then[key] for key in (*self.changed, *self.gone) if key in then}
        return PrivateChanges(isolated(back), [key for key in self.changed if key not in then])

    def make_in(self, private: MutableMapping[str, Any]) -> None:
        private.update(isolated(self.changed))
        for key in self.gone:
            private.pop(key, None)

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone)
