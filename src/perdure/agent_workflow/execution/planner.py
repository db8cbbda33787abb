"""What is to run next, decided from where an execution stands.

A node waits until all that leads to it is settled. It runs if an edge to it is taken, and is skipped otherwise. When
all are settled, an edge that leads back begins another pass through its loop. Whether an edge is taken is asked once a
pass, when its source has settled, and remembered: a function that would say something else later is not heard again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from perdure.agent_workflow.definition.config import END, START, ErrorMode
from perdure.agent_workflow.execution.edge_graph import NodeEdge, Ways
from perdure.agent_workflow.state import ExecutionState, NodeStanding, Status


@dataclass(frozen=True)
class Next:
    standing: ExecutionState
    ready: Mapping[str, Sequence[NodeEdge]] = field(default_factory=dict)
    """Nodes that run now, and the edges that led to each: those that lead back first."""
    skipped: tuple[str, ...] = ()
    traversed: tuple[NodeEdge, ...] = ()
    """Edges that were taken now."""
    is_limited: bool = False
    """Whether an edge back was not taken because there had been too many passes."""
    has_converged: bool = False
    """Whether one was not taken because nothing had changed."""
    ended: ExecutionState | None = None
    """Where it stood at the end of a pass, if another was begun."""


@dataclass
class _Look:
    """What is found out in one look at where an execution stands."""

    nodes: dict[str, NodeStanding]
    taken: dict[str, bool]
    """Of edges with a test, by name."""
    ready: dict[str, list[NodeEdge]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    traversed: list[NodeEdge] = field(default_factory=list)

    def start(self, node: str, told: str | None, taken: Sequence[NodeEdge], back: Sequence[NodeEdge] = ()) -> None:
        """`back`: edges that were told when the pass began."""
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], status="running", told=told)
        self.ready[node] = [*back, *taken]
        self.traversed += taken


class Planner:
    """Does nothing itself: it says what is to be done."""

    def __init__(
        self,
        nodes: Sequence[str],
        edges: Sequence[NodeEdge],
        *,
        error_modes: Mapping[str, ErrorMode] | None = None,
        routers: Collection[str] = (),
        needs: Mapping[str, Collection[str]] | None = None,
        max_passes: int | None = None,
        converges: bool = True,
        keeps: bool = True,
    ) -> None:
        self.ways = Ways(nodes, edges)
        self._modes = dict(error_modes or {})
        self._routers = frozenset(routers)
        """What they do counts as a change whenever they did it."""
        self._max_passes = max_passes or 1
        self._converges = converges
        self._keeps = keeps and converges
        """Whether a node that would be told the same again is not asked again."""
        self._needs = needs or {}

    def begin(self, standing: ExecutionState, given: Mapping[str, Any]) -> Next:
        """`given`: what the execution was given, as outputs of START."""
        start = NodeStanding("done", dict(given), 1, has_changed=True)
        return self.go_on(msgspec.structs.replace(standing, nodes={START: start}))

    def settle(
        self, standing: ExecutionState, node: str, status: Status, outputs: Mapping[str, Any], reason: str | None = None
    ) -> ExecutionState:
        """A node has come to its end."""
        before = standing.nodes[node]
        changed = node in self._routers or status != before.last or dict(outputs) != before.outputs
        now = NodeStanding(status, dict(outputs), before.runs + 1, reason, changed, before.last, before.told)
        return msgspec.structs.replace(standing, nodes={**standing.nodes, node: now})

    def go_on(self, standing: ExecutionState) -> Next:
        """What can run now, and what is skipped. Nothing ready and nothing running: the execution has ended."""
        # Nodes that were added to the workflow while the execution was under way have not run yet.
        nodes = {**{node: NodeStanding() for node in self.ways.nodes}, **standing.nodes}
        look = _Look(nodes, dict(standing.taken))
        for node in self.ways.order:
            into = self.ways.into[node]
            if look.nodes[node].status == "waiting" and all(self._is_decidable(one, look) for one in into):
                self._decide(node, standing, look)
        for edge in self.ways.edges:
            if self._is_decidable(edge, look):
                self._is_taken(edge, look)
        after = msgspec.structs.replace(standing, nodes=look.nodes, taken=look.taken)
        if look.ready or any(one.status == "running" for one in look.nodes.values()):
            return Next(after, look.ready, tuple(look.skipped), tuple(look.traversed))
        return self._go_back(after, look)

    def _is_decidable(self, edge: NodeEdge, look: _Look) -> bool:
        return all(look.nodes[source].is_settled for source in self.ways.sources(edge))

    def _decide(self, node: str, standing: ExecutionState, look: _Look) -> None:
        one, into = look.nodes[node], self.ways.into[node]
        taken = [edge for edge in into if self._is_taken(edge, look)]
        back = [edge for edge in self.ways.back if edge.target == node and self.ways.name_of(edge) in standing.back]
        told = self._told(node, [*back, *taken], look)
        if back or (not into and one.runs == 0):
            look.start(node, told, taken, back)
            return
        why = self._why_skipped(into, taken, look)
        if why is not None:
            has_changed = one.last not in (None, "skipped")
            # What it gave in a pass before is still there for those who refer to it.
            look.nodes[node] = NodeStanding("skipped", one.outputs, one.runs, why, has_changed, one.last, one.told)
            look.skipped.append(node)
        elif self._keeps and one.last == "done" and one.told == told and not self._is_handed_to(taken, look):
            # It was done, and would be told the same again: what it said stands.
            look.nodes[node] = msgspec.structs.replace(one, status="done", has_changed=False)
        else:
            look.start(node, told, taken)

    def _is_handed_to(self, taken: Sequence[NodeEdge], look: _Look) -> bool:
        """To hand off is to act: whom a router hands to in this pass runs, also where it is the same as before."""
        return any(edge.kind == "handoff" and self._speaker(edge, look).has_changed for edge in taken)

    def _told(self, node: str, edges: Sequence[NodeEdge], look: _Look) -> str | None:
        """A digest of all outputs that it can refer to now."""
        if not self.ways.back:
            return None
        speakers = [self.ways.speaker(edge, look.nodes) for edge in edges]
        heard = {one: look.nodes[self.ways.voice_of(one, look.nodes)].outputs for one in self._needs.get(node, ())}
        given = [speakers, [look.nodes[one].outputs for one in speakers], heard]
        return hashlib.blake2b(msgspec.json.encode(given, order="sorted"), digest_size=12).hexdigest()

    def _why_skipped(self, into: Sequence[NodeEdge], taken: Sequence[NodeEdge], look: _Look) -> str | None:
        for edge in into:
            has_failed = edge.kind != "fallback" and self._speaker(edge, look).status == "failed"
            if has_failed and self._modes.get(edge.source) == "skip":
                return f"{edge.source!r}, which it depends on, failed"
        if taken:
            return None
        if all(edge.kind == "fallback" for edge in into):
            return f"{into[0].source!r} did not fail, so it need not stand in" if into else None
        return f"no edge to it was taken (from {', '.join(dict.fromkeys(repr(edge.source) for edge in into))})"

    # ------------------------------------------------------------ edges

    def _speaker(self, edge: NodeEdge, look: _Look) -> NodeStanding:
        return look.nodes[self.ways.speaker(edge, look.nodes)]

    def _is_taken(self, edge: NodeEdge, look: _Look) -> bool:
        """Of an edge whose sources are settled."""
        if edge.kind == "fallback":
            return look.nodes[edge.source].status == "failed"
        if self._speaker(edge, look).status != "done":
            return False
        if edge.test is None and not edge.is_default:
            return True
        name = self.ways.name_of(edge)
        if name not in look.taken:
            look.taken[name] = self._asked(edge, look)
        return look.taken[name]

    def _asked(self, edge: NodeEdge, look: _Look) -> bool:
        if edge.is_default:
            others = (one for one in self.ways.out_of[edge.source] if not one.is_default and one.kind != "fallback")
            return not any(self._is_taken(one, look) for one in others)
        return edge.test is None or bool(edge.test(self._speaker(edge, look).outputs))

    def is_final(self, node: str, standing: ExecutionState) -> bool:
        """Whether the execution ended at this node: it is done, and nothing but the end comes after it."""
        nodes, ways = standing.nodes, self.ways
        if nodes[node].status != "done":
            return False
        onward = list(ways.out_of[node])
        for failed in ways.nodes:
            if failed != node and nodes[failed].status == "failed" and ways.voice_of(failed, nodes) == node:
                onward += [one for one in ways.out_of[failed] if one.kind != "fallback"]
        look = _Look(dict(nodes), dict(standing.taken))
        ahead = [one for one in onward if one.target != END and one not in ways.back]
        return not any(self._is_taken(one, look) for one in ahead)

    def ended_by(self, standing: ExecutionState) -> list[NodeEdge]:
        """Edges to the end that were taken."""
        look = _Look(dict(standing.nodes), dict(standing.taken))
        return [one for one in self.ways.edges if one.target == END and self._is_taken(one, look)]

    # ------------------------------------------------------------ loops

    def _go_back(self, standing: ExecutionState, look: _Look) -> Next:
        """All are settled: an edge that leads back begins another pass."""
        taken = [one for one in self.ways.back if self._is_taken(one, look)]
        told = Next(standing, {}, tuple(look.skipped), tuple(look.traversed))
        if not taken:
            return told
        # Each loop ends for itself: one that changed nothing is not gone through again because another goes on.
        taken = [one for one in taken if not self._converges or self._has_changed(one, standing)]
        if not taken:
            return replace(told, has_converged=True)
        again = self.ways.reached_from([edge.target for edge in taken])
        if standing.passes >= self._max_passes:
            return replace(told, is_limited=True)
        after = self.go_on(self._next_pass(standing, taken, again))
        skipped, traversed = (*told.skipped, *after.skipped), (*told.traversed, *taken, *after.traversed)
        return replace(after, skipped=skipped, traversed=traversed, ended=standing)

    def _has_changed(self, back: NodeEdge, standing: ExecutionState) -> bool:
        return any(standing.nodes[node].has_changed for node in self.ways.reached_from([back.target]))

    def _next_pass(self, standing: ExecutionState, taken: Sequence[NodeEdge], again: set[str]) -> ExecutionState:
        nodes = {
            node: msgspec.structs.replace(one, status="waiting", has_changed=False, last=one.status)
            if node in again
            else msgspec.structs.replace(one, has_changed=False)
            for node, one in standing.nodes.items()
        }
        asked_again = {self.ways.name_of(one) for one in self.ways.edges if again.intersection(self.ways.sources(one))}
        return msgspec.structs.replace(
            standing,
            nodes=nodes,
            taken={name: is_taken for name, is_taken in standing.taken.items() if name not in asked_again},
            passes=standing.passes + 1,
            back=tuple(map(self.ways.name_of, taken)),
        )
