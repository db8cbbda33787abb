"""Arguments of a run for tools and clients: saved for resumes, without secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure.errors import InvalidRun, MissingSecret, UnknownExecutor

T = TypeVar("T")

GLOBAL = "__global__"
"""The key of arguments for all executors."""


class Secret(Generic[T]):
    """Marks a run argument that must not be stored: `client_kwargs={"api_key": Secret(key)}`.

    Handlers get the value itself. A run that resumes from a checkpoint needs it again.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Secret(...)"


@dataclass(frozen=True)
class WithheldSecret:
    """Replaces a secret argument in a checkpoint."""

    name: str


class RunArguments(Mapping[str, Any]):
    """The arguments with opened secrets. Raises MissingSecret for a secret that was not passed again."""

    __slots__ = ("_arguments", "_seen")

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._seen: dict[str, Any] = {}

    @property
    def as_given(self) -> dict[str, Any]:
        """The arguments with closed secrets, for a sub-workflow."""
        return dict(self._arguments)

    def __getitem__(self, key: str) -> Any:
        if key not in self._seen:
            self._seen[key] = _open(self._arguments[key])
        return self._seen[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

    def __repr__(self) -> str:
        return f"RunArguments({dict(self._arguments)!r})"


def arrange_arguments(arguments: Mapping[str, Any], executor_ids: Mapping[str, Any], parameter: str) -> dict[str, Any]:
    """By executor if any key is an executor's id, otherwise for all of them."""
    if not isinstance(arguments, Mapping):
        raise InvalidRun(f"{parameter} must be a mapping, got {type(arguments).__name__}.")
    if not any(key in executor_ids for key in arguments):
        return {GLOBAL: _own(dict(arguments))}
    for key, value in arguments.items():
        if key not in executor_ids:
            raise UnknownExecutor(key, executor_ids, f"{parameter}, given by executor,")
        if not isinstance(value, Mapping):
            raise InvalidRun(
                f"{parameter} is given by executor (it has an executor's id as a key), so {key!r} must hold a mapping, "
                f"got {type(value).__name__}."
            )
    return {key: _own(dict(value)) for key, value in arguments.items()}


def arguments_for(arranged_arguments: Mapping[str, Any] | None, executor_id: str) -> RunArguments:
    if not arranged_arguments:
        return RunArguments({})
    shared = arranged_arguments.get(GLOBAL, {})
    return RunArguments({**shared, **arranged_arguments.get(executor_id, {})})


def _open(value: Any) -> Any:
    """The value with opened secrets, in new containers, so that handlers cannot change each other's."""
    if isinstance(value, WithheldSecret):
        raise MissingSecret(value.name)
    if isinstance(value, Secret):
        return value.value
    return _map_parts(value, _open)


def _map_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """A new plain container with changed parts; anything else, such as a client, is shared."""
    if type(value) is dict:
        return {key: change(part) for key, part in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(change, value))
    return value


def _own(value: Any) -> Any:
    return _map_parts(value, _own)


def without_secrets(value: Any, name: str = "") -> Any:
    """The value for a checkpoint: secrets in dicts, lists and tuples are replaced by WithheldSecret."""
    if isinstance(value, Secret):
        return WithheldSecret(name)
    if type(value) is dict:
        items = {key: without_secrets(part, str(key)) for key, part in value.items()}
        return items if any(items[key] is not part for key, part in value.items()) else value
    if type(value) in (list, tuple):
        parts = [without_secrets(part, name) for part in value]
        return type(value)(parts) if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value
