"""What every orchestration may be told beside who takes part: its name, and how its threads are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.agents.workflows import WorkflowBuilder
from perdure.engine.request import Durability, check_storage
from perdure.graph.builder import DEFAULT_MAX_ITERATIONS
from perdure.graph.executor import Executor
from perdure.names import check_identifier
from perdure.orchestrations.participants import Designation, Participant

LONGEST = 60
"""Characters of participants' names in the name of a team."""


@dataclass(slots=True)
class Settings:
    """Checked when it is made."""

    kind: str
    """Of the orchestration: what it is called by, with the names of its participants, where it was given no name."""
    name: str | None
    description: str | None
    checkpoint_storage: Any
    durability: Durability
    allowed_types: tuple[type | str, ...] = ()

    def __post_init__(self) -> None:
        check_identifier("name", self.name)
        if self.checkpoint_storage is not None:
            check_storage(self.checkpoint_storage)

    def keep_in(self, checkpoint_storage: Any) -> None:
        check_storage(checkpoint_storage)
        self.checkpoint_storage = checkpoint_storage

    def builder(
        self,
        team: Sequence[Participant],
        start: Executor,
        designation: Designation,
        *,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
    ) -> WorkflowBuilder:
        return WorkflowBuilder(
            max_iterations,
            _name_of(self.kind, team) if self.name is None else self.name,
            self.description,
            start_executor=start,
            checkpoint_storage=self.checkpoint_storage,
            durability=self.durability,
            allowed_types=self.allowed_types,
            **designation,
        )


def _name_of(kind: str, team: Sequence[Participant]) -> str:
    """The same in every process, and another for another team."""
    names = "-".join(one.name for one in team)
    if len(names) > LONGEST:
        digest = hashlib.blake2b(names.encode(), digest_size=4).hexdigest()
        names = f"{names[:LONGEST]}-{digest}"
    return f"{kind}-{names}"
