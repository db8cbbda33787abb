"""Numbers of things, and sizes, in words."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 thread`, `3 threads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def size(count: int) -> str:
    if abs(count) < 1024:
        return counted(count, "byte")
    amount, units = count / 1024, ["KB", "MB", "GB", "TB"]
    while abs(amount) >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:.1f} {units[0]}"
