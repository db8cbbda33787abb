"""What is wrong with a project: its configuration, what it names, and what that turns out to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.errors import PerdureError, did_you_mean


class ConfigProblem(NamedTuple):
    """One thing that is wrong, and where. Never with a secret in it."""

    source: str | None
    """The file; None for an environment variable."""
    place: str
    """The key, such as `auth.method`, or the variable, such as `PERDURE_AUTH__METHOD`."""
    sentence: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.place, self.sentence) if part)


class InvalidConfig(PerdureError, ValueError):
    """A configuration that no server can be started with: all that is wrong with it, a line for each."""

    code = "invalid_config"

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(one) for one in problems))


class NotImportable(PerdureError, ImportError):
    """What a configuration names cannot be imported from the project."""

    code = "not_importable"

    def __init__(self, named: str, sentence: str) -> None:
        self.named = named
        super().__init__(f"{named!r} cannot be imported: {sentence}")


class NotServable(PerdureError, TypeError):
    """What a configuration names is nothing that a server can use."""

    code = "not_servable"

    def __init__(self, named: str, sentence: str) -> None:
        self.named = named
        super().__init__(f"{named!r} {sentence}")


class UnknownWorkflow(PerdureError, LookupError):
    code = "unknown_workflow"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        names = list(known)
        listed = ", ".join(repr(one) for one in names) or "none"
        super().__init__(f"There is no workflow {name!r} here{did_you_mean(name, names)}. There are: {listed}.")


# ---------------------------------------------------------------- refusals


def invalid(place: str, sentence: str) -> InvalidConfig:
    """`place` is the key, such as `auth.path`, the environment variable, or the file."""
    return InvalidConfig([ConfigProblem(None, place, sentence)])
