"""What contents of several types have in common: methods that create them, usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    UsageDetails: TypeAlias = Mapping[str, int]
else:

    class UsageDetails(TypedDict, total=False):
        """Counts by name: these, and others of the model."""

        input_token_count: int
        output_token_count: int
        total_token_count: int


def content_factory(kind: str, *names: str, optional: str | None = None, **fixed: Any) -> Any:
    """A class method that creates contents of this type. `names` are its positional parameters, then `optional`."""
    positional = (*names, optional) if optional else names

    def create(cls: Callable[..., Any], *values: Any, **fields: Any) -> Any:
        if len(values) > len(positional):
            raise TypeError(f"A {kind} takes {len(positional)} positional arguments, got {len(values)}.")
        fields |= dict(zip(positional, values, strict=False))
        missing = [name for name in names if name not in fields]
        if missing:
            raise TypeError(f"A {kind} needs {', '.join(missing)}.")
        return cls(kind, **fields, **fixed)

    return classmethod(create)


def add_usage(first: UsageDetails | None, second: UsageDetails | None) -> dict[str, int]:
    """The sum of each count."""
    total = dict(first or {})
    for name, count in (second or {}).items():
        total[name] = total.get(name, 0) + count
    return total
