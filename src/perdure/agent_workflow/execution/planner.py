"""Decides what runs next, from the state of an execution.

A node waits until every node that leads to it is settled. It runs if an edge to it is taken, and is skipped otherwise.
When all nodes are settled, an edge that leads back begins another pass through its loop. The condition of an edge is
evaluated once a pass, when its source settles, and the result is recorded: a later evaluation could differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from perdure.agent_workflow.definition import END, START, ErrorMode
from perdure.agent_workflow.execution.edge_graph import EdgeGraph, NodeEdge
from perdure.agent_workflow.state import ExecutionState, NodeState, Status


@dataclass
class NextSteps:
    """The decisions of one evaluation of the state."""

    state: ExecutionState
    """With the nodes and the taken edges after the evaluation, which changes them in place."""
    ready: dict[str, list[NodeEdge]] = field(default_factory=dict)
    """Nodes that run now, each with the edges that led to it: edges that lead back come first."""
    skipped: list[str] = field(default_factory=list)
    traversed: list[NodeEdge] = field(default_factory=list)
    """Edges taken now."""
    is_limited: bool = False
    """Whether an edge back was not taken because the maximum of passes was reached."""
    has_converged: bool = False
    """Whether an edge back was not taken because the last pass changed nothing."""
    ended: ExecutionState | None = None
    """The state at the end of a pass, if another pass begins."""

    def start(self, node: str, digest: str | None, taken: Sequence[NodeEdge], back: Sequence[NodeEdge] = ()) -> None:
        """`back`: edges whose events were emitted when the pass began."""
        nodes = self.state.nodes
        nodes[node] = msgspec.structs.replace(nodes[node], status="running", input_digest=digest)
        self.ready[node] = [*back, *taken]
        self.traversed += taken


class Planner:
    """Decides without side effects: the conductor carries its decisions out."""

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
        skips_unchanged: bool = True,
    ) -> None:
        self.graph = EdgeGraph(nodes, edges)
        self._modes = dict(error_modes or {})
        self._routers = frozenset(routers)
        """A decision of a router counts as a change in every pass."""
        self.max_passes = max_passes or 1
        self._converges = converges
        self._skips_unchanged = skips_unchanged and converges
        """Whether a node with an unchanged input keeps its last outputs instead of running again."""
        self.needs = needs or {}

    def begin(self, state: ExecutionState, input: Mapping[str, Any]) -> NextSteps:
        """`input`: the input of the execution, as outputs of START."""
        start = NodeState("done", dict(input), 1, has_changed=True)
        return self.advance(msgspec.structs.replace(state, nodes={START: start}))

    def settle(
        self, state: ExecutionState, node: str, status: Status, outputs: Mapping[str, Any], reason: str | None = None
    ) -> ExecutionState:
        """The state after a node has ended."""
        before = state.nodes[node]
        changed = node in self._routers or status != before.last or dict(outputs) != before.outputs
        now = NodeState(status, dict(outputs), before.runs + 1, reason, changed, before.last, before.input_digest)
        return msgspec.structs.replace(state, nodes={**state.nodes, node: now})

    def advance(self, state: ExecutionState) -> NextSteps:
        """Nodes that run now, and nodes that are skipped. With none ready and none running, the execution has ended."""
        # Nodes that were added to the definition during the execution have not run yet.
        nodes = {**{node: NodeState() for node in self.graph.nodes}, **state.nodes}
        steps = NextSteps(_copy_state(state, nodes))
        state = steps.state
        for node in self.graph.order:
            into = self.graph.into[node]
            if state.nodes[node].status == "waiting" and all(self._is_decidable(edge, state) for edge in into):
                self._decide(node, steps)
        for edge in self.graph.edges:
            if self._is_decidable(edge, state):
                self._is_taken(edge, state)
        if steps.ready or any(node_state.status == "running" for node_state in state.nodes.values()):
            return steps
        return self._begin_pass(steps)

    def _is_decidable(self, edge: NodeEdge, state: ExecutionState) -> bool:
        return all(state.nodes[source].is_settled for source in self.graph.sources(edge))

    def _decide(self, node: str, steps: NextSteps) -> None:
        state = steps.state
        before, into = state.nodes[node], self.graph.into[node]
        taken = [edge for edge in into if self._is_taken(edge, state)]
        back = [edge for edge in self.graph.back if edge.target == node and self.graph.name_of(edge) in state.back]
        digest = self._digest_input(node, [*back, *taken], state.nodes)
        if back or (not into and before.runs == 0):
            steps.start(node, digest, taken, back)
            return
        reason = self._reason_to_skip(into, taken, state)
        # A handoff is an action: its target runs in this pass, even with an unchanged input.
        is_handed_to = any(edge.kind == "handoff" and self._deciding_state(edge, state).has_changed for edge in taken)
        is_unchanged = self._skips_unchanged and before.last == "done" and before.input_digest == digest
        if reason is not None:
            has_changed = before.last not in (None, "skipped")
            # Other nodes may still refer to its outputs of an earlier pass.
            state.nodes[node] = msgspec.structs.replace(
                before, status="skipped", reason=reason, has_changed=has_changed
            )
            steps.skipped.append(node)
        elif is_unchanged and not is_handed_to:
            state.nodes[node] = msgspec.structs.replace(before, status="done", has_changed=False)
        else:
            steps.start(node, digest, taken)

    def _digest_input(self, node: str, edges: Sequence[NodeEdge], nodes: Mapping[str, NodeState]) -> str | None:
        """A digest of all outputs that the node can refer to now; None in a workflow without loops."""
        if not self.graph.back:
            return None
        sources = [self.graph.deciding_node(edge, nodes) for edge in edges]
        needed = {other: nodes[self.graph.resolve_fallback(other, nodes)].outputs for other in self.needs.get(node, ())}
        inputs = [sources, [nodes[source].outputs for source in sources], needed]
        return hashlib.blake2b(msgspec.json.encode(inputs, order="sorted"), digest_size=12).hexdigest()

    def _reason_to_skip(self, into: Sequence[NodeEdge], taken: Sequence[NodeEdge], state: ExecutionState) -> str | None:
        for edge in into:
            has_failed = edge.kind != "fallback" and self._deciding_state(edge, state).status == "failed"
            if has_failed and self._modes.get(edge.source) == "skip":
                return f"{edge.source!r}, which it depends on, failed"
        if taken:
            return None
        if all(edge.kind == "fallback" for edge in into):
            return f"{into[0].source!r} did not fail, so its fallback is not needed" if into else None
        return f"no edge to it was taken (from {', '.join(dict.fromkeys(repr(edge.source) for edge in into))})"

    def _deciding_state(self, edge: NodeEdge, state: ExecutionState) -> NodeState:
        return state.nodes[self.graph.deciding_node(edge, state.nodes)]

    def _is_taken(self, edge: NodeEdge, state: ExecutionState) -> bool:
        """Whether an edge with settled sources is taken. Records the result of a test in the state."""
        if edge.kind == "fallback":
            return state.nodes[edge.source].status == "failed"
        source = self._deciding_state(edge, state)
        if source.status != "done":
            return False
        if edge.test is None and not edge.is_default:
            return True
        name = self.graph.name_of(edge)
        if name not in state.taken:
            if edge.is_default:
                siblings = self.graph.out_of[edge.source]
                others = [other for other in siblings if not other.is_default and other.kind != "fallback"]
                state.taken[name] = not any(self._is_taken(other, state) for other in others)
            else:
                state.taken[name] = edge.test is None or bool(edge.test(source.outputs))
        return state.taken[name]

    def is_final(self, node: str, state: ExecutionState) -> bool:
        """Whether the execution ended at this node: it is done, and only END comes after it."""
        nodes, graph = state.nodes, self.graph
        if nodes[node].status != "done":
            return False
        onward = list(graph.out_of[node])
        for failed in graph.nodes:
            if failed != node and nodes[failed].status == "failed" and graph.resolve_fallback(failed, nodes) == node:
                onward += [edge for edge in graph.out_of[failed] if edge.kind != "fallback"]
        copy = _copy_state(state, nodes)
        ahead = [edge for edge in onward if edge.target != END and edge not in graph.back]
        return not any(self._is_taken(edge, copy) for edge in ahead)

    def edges_to_end(self, state: ExecutionState) -> list[NodeEdge]:
        """Edges to END that were taken."""
        copy = _copy_state(state, state.nodes)
        return [edge for edge in self.graph.edges if edge.target == END and self._is_taken(edge, copy)]

    def _begin_pass(self, steps: NextSteps) -> NextSteps:
        """All nodes are settled: an edge that leads back begins another pass."""
        state = steps.state
        taken = [edge for edge in self.graph.back if self._is_taken(edge, state)]
        if not taken:
            return steps
        if self._converges:  # each loop ends on its own: an unchanged one does not repeat because another continues
            changed = {name for name, node in state.nodes.items() if node.has_changed}
            taken = [edge for edge in taken if changed & self.graph.reached_from([edge.target])]
            if not taken:
                return replace(steps, has_converged=True)
        if state.passes >= self.max_passes:
            return replace(steps, is_limited=True)
        after = self.advance(self._next_pass(state, taken))
        skipped, traversed = [*steps.skipped, *after.skipped], [*steps.traversed, *taken, *after.traversed]
        return replace(after, skipped=skipped, traversed=traversed, ended=state)

    def _next_pass(self, state: ExecutionState, taken: Sequence[NodeEdge]) -> ExecutionState:
        again = self.graph.reached_from([edge.target for edge in taken])
        nodes = {
            node: msgspec.structs.replace(before, status="waiting", has_changed=False, last=before.status)
            if node in again
            else msgspec.structs.replace(before, has_changed=False)
            for node, before in state.nodes.items()
        }
        evaluated_again = {
            self.graph.name_of(edge) for edge in self.graph.edges if again.intersection(self.graph.sources(edge))
        }
        return msgspec.structs.replace(
            state,
            nodes=nodes,
            taken={name: is_taken for name, is_taken in state.taken.items() if name not in evaluated_again},
            passes=state.passes + 1,
            back=tuple(map(self.graph.name_of, taken)),
        )


def _copy_state(state: ExecutionState, nodes: Mapping[str, NodeState]) -> ExecutionState:
    """The state with these nodes: an evaluation may change the copy."""
    return msgspec.structs.replace(state, nodes=dict(nodes), taken=dict(state.taken))
