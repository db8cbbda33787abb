"""Why a part of a value cannot be saved or read, and where in the value it is."""

from __future__ import annotations

# A fixed limit, not the interpreter's: how deep the caller's own stack is must not decide whether what
# was saved can be read again. A value of this depth makes a tree of at most three times the depth.
MAX_DEPTH = 100
# A value at the deepest place may still be a time with a zone with an offset.
READ_DEPTH = MAX_DEPTH + 8


class Refusal(Exception):
    """Why a part cannot be saved or read. Each container on the way out adds where the part sits in it."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.steps: list[tuple[str, object]] = []

    def inside(self, container: object, step: str) -> None:
        self.steps.append((step, container))

    def path(self, root: str) -> str:
        return root + "".join(step for step, _ in reversed(self.steps))


class TooDeep(Refusal):
    """Nested beyond MAX_DEPTH; a cycle ends here too, so that the walk need not watch for one."""

    def __init__(self) -> None:
        super().__init__(
            f"it is nested more than {MAX_DEPTH} levels deep",
            "Keep the parts in a flat list or dict and refer to them by id.",
        )


class NotDeclared(Refusal):
    """A type that this decoder may not build; a lenient one leaves the value around it opaque."""

    def __init__(self, name: object) -> None:
        super().__init__(
            f"the type {name!r} was not declared, or is not a data type",
            "Declare it with allowed_types=[...], or use register_type. If it was renamed: migrations=[...].",
        )


def shown(key: object) -> str:
    try:
        text = repr(key)
    except Exception:  # noqa: BLE001 - any error of a user's __repr__; another error is being reported
        text = f"<{type(key).__qualname__}>"
    return text if len(text) <= 100 else f"{text[:97]}..."
