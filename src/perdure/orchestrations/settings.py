"""What every orchestration may be told beside who takes part: its name, and how its threads are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.engine.run.options import Durability, check_storage
from perdure.graph.builder import DEFAULT_MAX_ITERATIONS
from perdure.graph.executor import Executor
from perdure.names import check_identifier
from perdure.orchestrations.participants import Designation, Participant
from perdure.workflows.builder import WorkflowBuilder

# ---------------------------------------------------------------- conversations


SAID_BY_USERS = frozenset({"text", "data", "uri"})
SAID_BY_OTHERS = frozenset({"text"})


def clean_conversation_for_handoff(conversation: Iterable[Message]) -> list[Message]:
    """What one agent may be told of another's turn: what was said, without calls of tools and their results.

    A model's service refuses calls that it has not made itself. A message with nothing else is left out; one that has
    nothing of it stays as it is.
    """
    cleaned = []
    for message in conversation:
        kept = tuple(one for one in message.contents if _is_said(one, message.role))
        if kept:
            is_same = len(kept) == len(message.contents)
            cleaned.append(message if is_same else msgspec.structs.replace(message, contents=kept))
    return cleaned


def _is_said(content: Content, role: str) -> bool:
    if content.type not in (SAID_BY_USERS if role == "user" else SAID_BY_OTHERS):
        return False
    return content.type != "text" or bool(content.text)


def create_completion_message(*, text: str | None = None, author_name: str, reason: str = "completed") -> Message:
    """The message that an orchestration ends with."""
    return Message("assistant", text or f"Conversation {reason}.", author_name)


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
