"""The root of all errors, and the errors of no single room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class PerdureError(Exception):
    """The root: `except PerdureError` catches everything perdure raises on purpose."""

    code = "error"
    """Stable name for machines; the sentence may change, this does not."""

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries and are copied. Calling the class would need its arguments, which are not
        # kept, so `_rebuild` starts from the sentence and the attributes.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[PerdureError], args: tuple[object, ...], attributes: dict[str, object]) -> PerdureError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class WorkflowException(PerdureError):
    code = "workflow"


class MissingExtra(PerdureError, ImportError):
    code = "missing_extra"

    def __init__(self, needed_by: str, package: str, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_by} needs the package {package!r}, which is not installed: pip install 'perdure[{extra}]'."
        )


class MissingProgram(PerdureError, RuntimeError):
    """A program that perdure needs is not installed, or failed."""

    code = "missing_program"


class NotInAsyncCode(PerdureError, RuntimeError):
    code = "not_in_async_code"


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
