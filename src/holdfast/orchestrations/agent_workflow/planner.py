"""What is to run next, decided from where an execution stands. Pure: nothing here does anything.

A node waits until all that leads to it is settled. It runs if an edge to it is taken, and is skipped otherwise. When
all are settled, an edge that leads back begins another pass through its loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.orchestrations.agent_workflow.definition import END, START, ErrorMode
from holdfast.orchestrations.agent_workflow.layout import lay_out
from holdfast.orchestrations.agent_workflow.standing import NodeStanding, Standing, Status

Test: TypeAlias = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    test: Test | None = None
    """Of the source's outputs; None: it is always taken."""
    description: str | None = None
    """Of the test."""
    is_default: bool = False
    delay: float | None = None
    kind: Literal["edge", "handoff", "fallback"] = "edge"


@dataclass(frozen=True)
class Next:
    standing: Standing
    ready: Mapping[str, Sequence[Edge]] = field(default_factory=dict)
    """Nodes that run now, and the edges that led to each: those that lead back first."""
    skipped: tuple[str, ...] = ()
    traversed: tuple[Edge, ...] = ()
    """Edges that were taken now."""
    is_limited: bool = False
    """Whether an edge back was not taken because there had been too many passes."""
    has_converged: bool = False
    """Whether one was not taken because nothing had changed."""


@dataclass
class _Pass:
    """What is found out in one look at where an execution stands."""

    nodes: dict[str, NodeStanding]
    ready: dict[str, list[Edge]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    traversed: list[Edge] = field(default_factory=list)

    def start(self, node: str, taken: Sequence[Edge], back: Sequence[Edge] = ()) -> None:
        """`back`: edges that were told when the pass began."""
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], status="running")
        self.ready[node] = [*back, *taken]
        self.traversed += taken


class Planner:
    """The same standing always gives the same."""

    def __init__(
        self,
        nodes: Sequence[str],
        edges: Sequence[Edge],
        *,
        error_modes: Mapping[str, ErrorMode] | None = None,
        max_passes: int | None = None,
        converges: bool = True,
    ) -> None:
        self._nodes = tuple(nodes)
        self._edges = tuple(edges)
        self._modes = dict(error_modes or {})
        self._max_passes = max_passes or 1
        self._converges = converges
        self._fallbacks = {one.source: one.target for one in edges if one.kind == "fallback"}
        self._out_of = {node: [one for one in edges if one.source == node] for node in (START, *nodes)}
        inner = [one for one in edges if one.source != START and one.target != END]
        stand_ins = [(other, one.target) for one in inner for other in self._sources(one)[1:]]
        self._layout = lay_out(nodes, [*((one.source, one.target) for one in inner), *stand_ins])
        self._back = [inner[place] for place in sorted(self._layout.back) if place < len(inner)]
        self._into = {node: [one for one in edges if one.target == node and one not in self._back] for node in nodes}

    @property
    def layers(self) -> int:
        return len(self._layout.layers)

    @property
    def nodes_by_layer(self) -> Sequence[Sequence[str]]:
        return self._layout.layers

    def layer_of(self, node: str) -> int:
        return next(index for index, nodes in enumerate(self._layout.layers) if node in nodes)

    @property
    def back(self) -> Sequence[Edge]:
        """Edges that lead back: each closes a cycle."""
        return self._back

    def reached_from(self, nodes: Sequence[str]) -> set[str]:
        """These, and all that comes after them without going back."""
        reached = set(nodes)
        for node in self._layout.order:
            if any(source in reached for one in self._into[node] for source in self._sources(one)):
                reached.add(node)
        return reached

    # ------------------------------------------------------------ fallbacks

    def _stand_ins(self, node: str) -> list[str]:
        """Fallbacks that speak for it, should it fail: the first has no edges of its own, and so on."""
        found: list[str] = []
        while (fallback := self._fallbacks.get(node)) is not None and fallback not in found:
            if any(one.kind != "fallback" for one in self._out_of[fallback]):
                break
            found.append(fallback)
            node = fallback
        return found

    def _sources(self, edge: Edge) -> list[str]:
        """Nodes that must be settled before it is known whether the edge is taken."""
        return [edge.source] if edge.kind == "fallback" else [edge.source, *self._stand_ins(edge.source)]

    def speaker(self, edge: Edge, nodes: Mapping[str, NodeStanding]) -> str:
        """Whose outputs decide about the edge: its source or, where that has failed, its fallback."""
        return edge.source if edge.kind == "fallback" else self.voice_of(edge.source, nodes)

    def voice_of(self, node: str, nodes: Mapping[str, NodeStanding]) -> str:
        """Whoever speaks for a node: itself or, where it has failed, its fallback."""
        for one in (node, *self._stand_ins(node)):
            if not _has_failed(nodes[one]):
                return one
        return node

    def _speaker(self, edge: Edge, nodes: Mapping[str, NodeStanding]) -> NodeStanding:
        return nodes[self.speaker(edge, nodes)]

    def is_failed(self, node: str, nodes: Mapping[str, NodeStanding]) -> bool:
        """Whether it failed and nobody stood in for it."""
        fallback = self._fallbacks.get(node)
        if nodes[node].status != "failed":
            return False
        return fallback is None or (nodes[fallback].status != "done" and not self._is_covered(fallback, nodes))

    def _is_covered(self, node: str, nodes: Mapping[str, NodeStanding]) -> bool:
        return nodes[node].status == "failed" and not self.is_failed(node, nodes)

    # ------------------------------------------------------------ deciding

    def begin(self, standing: Standing, given: Mapping[str, Any]) -> Next:
        """`given`: what the execution was given, as outputs of START."""
        start = NodeStanding("done", dict(given), 1, has_changed=True)
        nodes = {START: start, **{node: NodeStanding() for node in self._nodes}}
        return self.go_on(msgspec.structs.replace(standing, nodes=nodes))

    def settle(
        self, standing: Standing, node: str, status: Status, outputs: Mapping[str, Any], reason: str | None = None
    ) -> Standing:
        """A node has come to its end."""
        before = standing.nodes[node]
        changed = status != before.last or dict(outputs) != before.outputs
        now = NodeStanding(status, dict(outputs), before.runs + 1, reason, changed, before.last)
        return msgspec.structs.replace(standing, nodes={**standing.nodes, node: now})

    def go_on(self, standing: Standing) -> Next:
        """What can run now, and what is skipped. Nothing ready and nothing running: the execution has ended."""
        # Nodes that were added to the workflow while the execution was under way have not run yet.
        found = _Pass({**{node: NodeStanding() for node in self._nodes}, **standing.nodes})
        for node in self._layout.order:
            if found.nodes[node].status == "waiting" and self._can_be_decided(node, found.nodes):
                self._decide(node, standing, found)
        after = msgspec.structs.replace(standing, nodes=found.nodes)
        if found.ready or any(one.status == "running" for one in found.nodes.values()):
            return Next(after, found.ready, tuple(found.skipped), tuple(found.traversed))
        return self._go_back(after, found)

    def _can_be_decided(self, node: str, nodes: Mapping[str, NodeStanding]) -> bool:
        return all(nodes[source].is_settled for one in self._into[node] for source in self._sources(one))

    def _decide(self, node: str, standing: Standing, found: _Pass) -> None:
        one = found.nodes[node]
        taken = [edge for edge in self._into[node] if self.is_taken(edge, found.nodes)]
        back = [self._back[place] for place in standing.back if self._back[place].target == node]
        if back or (not self._into[node] and one.runs == 0):
            found.start(node, taken, back)
            return
        why = self._why_skipped(node, taken, found.nodes)
        if why is not None:
            has_changed = one.last not in (None, "skipped")
            found.nodes[node] = NodeStanding("skipped", {}, one.runs, why, has_changed, one.last)
            found.skipped.append(node)
        elif self._is_kept(one) and not any(self._speaker(edge, found.nodes).has_changed for edge in taken):
            # It was done, and nothing that it builds on has changed in this pass: neither has what it says.
            found.nodes[node] = msgspec.structs.replace(one, status="done", has_changed=False)
        else:
            found.start(node, taken)

    def _is_kept(self, one: NodeStanding) -> bool:
        """Whether what it said in the pass before stands, if nothing has changed."""
        return self._converges and one.last == "done"

    def _why_skipped(self, node: str, taken: Sequence[Edge], nodes: Mapping[str, NodeStanding]) -> str | None:
        into = self._into[node]
        for edge in into:
            speaker = self._speaker(edge, nodes)
            if edge.kind != "fallback" and speaker.status == "failed" and self._modes.get(edge.source) == "skip":
                return f"{edge.source!r}, which it depends on, failed"
        if taken:
            return None
        if all(edge.kind == "fallback" for edge in into):
            return f"{into[0].source!r} did not fail, so it need not stand in" if into else None
        return f"no edge to it was taken (from {', '.join(dict.fromkeys(repr(edge.source) for edge in into))})"

    def is_taken(self, edge: Edge, nodes: Mapping[str, NodeStanding]) -> bool:
        """Its source and, where that has failed, its fallback are settled."""
        if edge.kind == "fallback":
            return nodes[edge.source].status == "failed"
        speaker = self._speaker(edge, nodes)
        if speaker.status != "done":
            return False
        if edge.is_default:
            others = (one for one in self._out_of[edge.source] if not one.is_default and one.kind != "fallback")
            return not any(_holds(one, speaker.outputs) for one in others)
        return _holds(edge, speaker.outputs)

    def is_final(self, node: str, nodes: Mapping[str, NodeStanding]) -> bool:
        """Whether the execution ends at this node: it is done, and nothing but the end comes after it."""
        if nodes[node].status != "done":
            return False
        onward = [one for one in self._out_of[node] if one.target != END]
        for failed in self._nodes:
            if failed != node and nodes[failed].status == "failed" and self.voice_of(failed, nodes) == node:
                onward += [one for one in self._out_of[failed] if one.target != END and one.kind != "fallback"]
        return not any(self.is_taken(one, nodes) and one not in self._back for one in onward)

    def ended_by(self, nodes: Mapping[str, NodeStanding]) -> list[Edge]:
        """Edges to the end that are taken."""
        return [one for one in self._edges if one.target == END and self.is_taken(one, nodes)]

    # ------------------------------------------------------------ loops

    def _go_back(self, standing: Standing, found: _Pass) -> Next:
        """All are settled: an edge that leads back begins another pass."""
        nodes = standing.nodes
        taken = [one for one in self._back if self.is_taken(one, nodes)]
        told = Next(standing, {}, tuple(found.skipped), tuple(found.traversed))
        if not taken:
            return told
        ran = [one for node, one in nodes.items() if node in self.reached_from([edge.target for edge in taken])]
        if self._converges and not any(one.has_changed for one in ran):
            return replace(told, has_converged=True)
        if standing.passes >= self._max_passes:
            return replace(told, is_limited=True)
        again = self.reached_from([edge.target for edge in taken])
        waiting = {
            node: msgspec.structs.replace(one, status="waiting", has_changed=False, last=one.status)
            if node in again
            else msgspec.structs.replace(one, has_changed=False)
            for node, one in nodes.items()
        }
        back = tuple(place for place, edge in enumerate(self._back) if edge in taken)
        begun = msgspec.structs.replace(standing, nodes=waiting, passes=standing.passes + 1, back=back)
        after = self.go_on(begun)
        skipped, traversed = (*told.skipped, *after.skipped), (*told.traversed, *taken, *after.traversed)
        return replace(after, skipped=skipped, traversed=traversed)


def _has_failed(one: NodeStanding) -> bool:
    """In this pass or, until it is known, in the one before: whoever took an edge back spoke then."""
    return one.status == "failed" or (not one.is_settled and one.last == "failed")


def _holds(edge: Edge, outputs: Mapping[str, Any]) -> bool:
    return edge.test is None or edge.test(outputs)
