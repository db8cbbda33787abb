"""What is to run next, decided from where an execution stands. Pure: nothing here does anything.

A node waits until all that leads to it is settled. It runs if an edge to it is taken, and is skipped otherwise. When
all are settled, an edge that leads back begins another pass through its loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    ready: tuple[str, ...] = ()
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
    ready: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    traversed: list[Edge] = field(default_factory=list)


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
        stand_ins = [Edge(self._stand_in(one.source), one.target) for one in inner if self._has_stand_in(one)]
        self._layout = lay_out(nodes, [(one.source, one.target) for one in (*inner, *stand_ins)])
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

    def _stand_in(self, node: str) -> str:
        return self._fallbacks[node]

    def _has_stand_in(self, edge: Edge) -> bool:
        """Whether the edge is taken with what a fallback gives, should its source fail: if that has no edges of its
        own."""
        return (
            edge.kind != "fallback" and edge.source in self._fallbacks and not self._out_of[self._stand_in(edge.source)]
        )

    def _sources(self, edge: Edge) -> Iterator[str]:
        """Nodes that must be settled before it is known whether the edge is taken."""
        yield edge.source
        if self._has_stand_in(edge):
            yield self._stand_in(edge.source)

    def speaker(self, edge: Edge, nodes: Mapping[str, NodeStanding]) -> str:
        """Whose outputs decide about the edge: its source or, where that has failed, its fallback."""
        has_failed = nodes[edge.source].status == "failed"
        return self._stand_in(edge.source) if has_failed and self._has_stand_in(edge) else edge.source

    def _speaker(self, edge: Edge, nodes: Mapping[str, NodeStanding]) -> NodeStanding:
        return nodes[self.speaker(edge, nodes)]

    def is_failed(self, node: str, nodes: Mapping[str, NodeStanding]) -> bool:
        """Whether it failed and nobody stood in for it."""
        fallback = self._fallbacks.get(node)
        return nodes[node].status == "failed" and (fallback is None or nodes[fallback].status != "done")

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
        changed = before.runs == 0 or dict(outputs) != before.outputs or status != "done"
        now = NodeStanding(status, dict(outputs), before.runs + 1, reason, changed)
        return msgspec.structs.replace(standing, nodes={**standing.nodes, node: now})

    def go_on(self, standing: Standing) -> Next:
        """What can run now, and what is skipped. Nothing ready and nothing running: the execution has ended."""
        found = _Pass(dict(standing.nodes))
        for node in self._layout.order:
            if found.nodes[node].status == "waiting" and self._can_be_decided(node, found.nodes):
                self._decide(node, standing, found)
        after = msgspec.structs.replace(standing, nodes=found.nodes)
        if found.ready or any(one.status == "running" for one in found.nodes.values()):
            return Next(after, tuple(found.ready), tuple(found.skipped), tuple(found.traversed))
        return self._go_back(after, found)

    def _can_be_decided(self, node: str, nodes: Mapping[str, NodeStanding]) -> bool:
        return all(nodes[source].is_settled for one in self._into[node] for source in self._sources(one))

    def _decide(self, node: str, standing: Standing, found: _Pass) -> None:
        one = found.nodes[node]
        taken = [edge for edge in self._into[node] if self.is_taken(edge, found.nodes)]
        is_begun = not self._into[node] and one.runs == 0
        if node in standing.forced or is_begun:
            found.nodes[node] = msgspec.structs.replace(one, status="running")
            found.ready.append(node)
            found.traversed += taken
            return
        why = self._why_skipped(node, taken, found.nodes)
        if why is not None:
            found.nodes[node] = NodeStanding("skipped", {}, one.runs, why, has_changed=one.runs > 0)
            found.skipped.append(node)
        elif (
            one.runs and one.reason is None and not any(self._speaker(edge, found.nodes).has_changed for edge in taken)
        ):
            # It was done, and nothing that it builds on has changed in this pass: neither has what it says.
            found.nodes[node] = msgspec.structs.replace(one, status="done", has_changed=False)
        else:
            found.nodes[node] = msgspec.structs.replace(one, status="running")
            found.ready.append(node)
            found.traversed += taken

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
        replaced = [one for one in self._fallbacks if self._fallbacks[one] == node and nodes[one].status == "failed"]
        for failed in replaced:
            onward += [one for one in self._out_of[failed] if one.target != END and one.kind != "fallback"]
        return not any(self.is_taken(one, nodes) and one not in self._back for one in onward)

    # ------------------------------------------------------------ loops

    def _go_back(self, standing: Standing, found: _Pass) -> Next:
        """All are settled: an edge that leads back begins another pass."""
        nodes = standing.nodes
        taken = [one for one in self._back if self.is_taken(one, nodes)]
        told = Next(standing, (), tuple(found.skipped), tuple(found.traversed))
        if not taken:
            return told
        ran = [one for node, one in nodes.items() if node in self.reached_from([edge.target for edge in taken])]
        if self._converges and not any(one.has_changed for one in ran):
            return Next(standing, (), told.skipped, told.traversed, has_converged=True)
        if standing.passes >= self._max_passes:
            return Next(standing, (), told.skipped, told.traversed, is_limited=True)
        forced = tuple(dict.fromkeys(edge.target for edge in taken))
        again = self.reached_from(forced)
        waiting = {
            node: msgspec.structs.replace(one, status="waiting" if node in again else one.status, has_changed=False)
            for node, one in nodes.items()
        }
        begun = msgspec.structs.replace(standing, nodes=waiting, passes=standing.passes + 1, forced=forced)
        after = self.go_on(begun)
        return Next(
            after.standing,
            after.ready,
            (*told.skipped, *after.skipped),
            (*told.traversed, *taken, *after.traversed),
            after.is_limited,
            after.has_converged,
        )


def _holds(edge: Edge, outputs: Mapping[str, Any]) -> bool:
    return edge.test is None or edge.test(outputs)
