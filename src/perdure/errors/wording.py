"""Names, types and amounts as messages show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches


def type_name(annotation: object) -> str:
    """The type as messages print it: `str`, `list[int]`, `Ticket`."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def type_names(types: Sequence[object]) -> str:
    return ", ".join(map(type_name, types)) or "nothing"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def short_repr(value: object, max_length: int = 100, show: Callable[[object], str] = repr) -> str:
    try:
        text = show(value)
    except Exception:  # noqa: BLE001 - any error of a user's __repr__; another error is being reported
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def format_count(number: int, what: str) -> str:
    """`1 thread`, `3 threads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def format_size(count: int) -> str:
    if abs(count) < 1024:
        return format_count(count, "byte")
    amount, units = count / 1024, ["KB", "MB", "GB", "TB"]
    while abs(amount) >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:.1f} {units[0]}"
