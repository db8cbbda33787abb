"""Saying that a name goes: one sentence, at the user's line (docs/reference/versioning.md has the policy)."""

from __future__ import annotations

import sys
import warnings

PACKAGE = __name__.partition(".")[0]


def deprecated(name: str, *, instead: str, since: str, removed_in: str) -> None:
    """Warn that `name` is deprecated: since which version, what to write instead, and the version in which it goes.

    Called where the name is used: in the function itself, or in the module's `__getattr__`. The warning is put down to
    the line that led into this package: Python shows it where that is the user's own program, and pytest always.
    """
    warnings.warn(
        f"{name} is deprecated since perdure {since} and will be removed in {removed_in}. Use {instead} instead.",
        DeprecationWarning,
        stacklevel=_frames_of_this_package(),
    )


def _frames_of_this_package() -> int:
    """How many frames lie between `warnings.warn` and the nearest one that is not perdure's, counted as it counts."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame = frame.f_back
        level += 1
    return level
