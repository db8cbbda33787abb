"""Names that are used once: what text formats call nodes, made from ids that may look alike after cleaning."""

from __future__ import annotations


class UniqueNames:
    def __init__(self) -> None:
        self._taken: set[str] = set()

    def add(self, wanted: str) -> str:
        """The name wanted, or the first of `name_2`, `name_3`, ... that is free."""
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name
