"""Where on a box's upper and lower side its links end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_STEP = 16.0
_SAME = 0.5


def spread(
    middle: float, half_width: float, wanted: Sequence[float], *, is_wide: bool, corner: float = 12
) -> list[float]:
    """A place for each link, whose other ends are at `wanted`, sorted: side by side around the middle of the box.

    A link that comes straight from above the middle stays straight. On a wide box (a sub-workflow) each one does for
    which there is room.
    """
    room = max(half_width - corner, 0)
    if is_wide:
        kept = [min(max(x, middle - room), middle + room) for x in wanted]
        if all(right - left >= _STEP for left, right in pairwise(kept)):
            return kept
    fixed = next((number for number, x in enumerate(wanted) if abs(x - middle) < _SAME), None)
    centre = (len(wanted) - 1) / 2 if fixed is None else fixed
    widest = max(centre, len(wanted) - 1 - centre)
    step = min(_STEP, room / widest) if widest else 0
    return [middle + (number - centre) * step for number in range(len(wanted))]
