"""A pen that draws the line of a link: straight pieces with round corners, soft curves from layer to layer."""

from __future__ import annotations

from perdure.graph.drawing.figures import Point, Step

ARROW = 8.0
"""Length of an arrow's head: the line ends where it begins."""

_RADIUS = 10.0
_SAME = 0.05


class Pen:
    def __init__(self, x: float, y: float) -> None:
        self._steps: list[Step] = [("M", ((x, y),))]

    @property
    def at(self) -> Point:
        return self._steps[-1][1][-1]

    def line(self, x: float, y: float) -> None:
        """Straight on; nothing if already there. Pieces in one direction become one."""
        if _near(self.at, (x, y)):
            return
        if self._steps[-1][0] == "L" and _straight(self._steps[-2][1][-1], self.at, (x, y)):
            self._steps.pop()
        self._steps.append(("L", ((x, y),)))

    def sway(self, x: float, y: float) -> None:
        """Up or down to another place, beginning and ending upright."""
        from_x, from_y = self.at
        if abs(from_x - x) < _SAME:
            self.line(x, y)
            return
        middle = (from_y + y) / 2
        self._steps.append(("C", ((from_x, middle), (x, middle), (x, y))))

    def steps(self) -> tuple[Step, ...]:
        """What was drawn, with its corners rounded."""
        made: list[Step] = [self._steps[0]]
        for step, following in zip(self._steps[1:], [*self._steps[2:], None], strict=True):
            corner = step[1][-1]
            if step[0] == "L" and following is not None and following[0] == "L":
                before, after = made[-1][1][-1], following[1][0]
                size = min(_RADIUS, _length(before, corner) / 2, _length(corner, after) / 2)
                made.append(("L", (_towards(corner, before, size),)))
                made.append(("Q", (corner, _towards(corner, after, size))))
            else:
                made.append(step)
        return tuple(made)


def _near(one: Point, other: Point) -> bool:
    return abs(one[0] - other[0]) < _SAME and abs(one[1] - other[1]) < _SAME


def _straight(one: Point, two: Point, three: Point) -> bool:
    upright = abs(one[0] - two[0]) < _SAME and abs(two[0] - three[0]) < _SAME
    level = abs(one[1] - two[1]) < _SAME and abs(two[1] - three[1]) < _SAME
    return upright or level


def _length(one: Point, other: Point) -> float:
    """Of a piece that is upright or level."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = _length(start, end) or 1
    part = distance / length
    return (start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part)
