"""Which links lead back: without them nothing leads in a circle, and everything can stand below where it comes from."""

from __future__ import annotations

from perdure.graph.drawing.picture import Picture


def back_links(picture: Picture) -> frozenset[int]:
    """The numbers of the links to draw upwards.

    Two ways to choose them, and the one that needs fewer: those that a walk from the start finds leading to where it
    came from, or those that close a circle of links leading away from the start.
    """
    by_walking, by_distance = _found_walking(picture), _found_by_distance(picture)
    return frozenset(by_distance if len(by_distance) < len(by_walking) else by_walking)


def _roots(picture: Picture) -> list[int]:
    return sorted(range(len(picture.shapes)), key=lambda number: not picture.shapes[number].is_start)


def _leaving(picture: Picture) -> list[list[int]]:
    leaving: list[list[int]] = [[] for _ in picture.shapes]
    for number, link in enumerate(picture.links):
        if link.source != link.target:
            leaving[link.source].append(number)
    return leaving


def _found_walking(picture: Picture) -> set[int]:
    leaving = _leaving(picture)
    found: set[int] = set()
    state = ["unseen"] * len(picture.shapes)
    for root in _roots(picture):
        if state[root] != "unseen":
            continue
        state[root] = "on the way"
        walk = [(root, iter(leaving[root]))]  # no recursion: a chain may be longer than Python's stack
        while walk:
            shape, links = walk[-1]
            number = next(links, -1)
            if number < 0:
                state[shape] = "done"
                walk.pop()
                continue
            target = picture.links[number].target
            if state[target] == "on the way":
                found.add(number)
            elif state[target] == "unseen":
                state[target] = "on the way"
                walk.append((target, iter(leaving[target])))
    return found


def _found_by_distance(picture: Picture) -> set[int]:
    distances = _distances(picture)
    links = [(number, link) for number, link in enumerate(picture.links) if link.source != link.target]
    following: list[set[int]] = [set() for _ in picture.shapes]
    for _, link in links:
        if distances[link.target] > distances[link.source]:
            following[link.source].add(link.target)
    found: set[int] = set()
    for number, link in links:
        if distances[link.target] > distances[link.source]:
            continue
        if _leads_to(following, link.target, link.source):
            found.add(number)
        else:
            following[link.source].add(link.target)
    return found


def _distances(picture: Picture) -> list[int]:
    """How many links each shape is away from the start, by the shortest way."""
    leaving = _leaving(picture)
    distances = [-1] * len(picture.shapes)
    for root in _roots(picture):
        if distances[root] >= 0:
            continue
        distances[root] = 0
        queue = [root]
        for shape in queue:  # grows while it is read
            for number in leaving[shape]:
                target = picture.links[number].target
                if distances[target] < 0:
                    distances[target] = distances[shape] + 1
                    queue.append(target)
    return distances


def _leads_to(following: list[set[int]], start: int, end: int) -> bool:
    seen, walk = {start}, [start]
    while walk:
        shape = walk.pop()
        if shape == end:
            return True
        fresh = following[shape] - seen
        seen |= fresh
        walk += fresh
    return False
