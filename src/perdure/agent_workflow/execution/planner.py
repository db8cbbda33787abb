"""Decides what runs next, from the state of an execution.

A node waits until every node that leads to it is settled. It runs if an edge to it is taken, and is skipped otherwise.
When all nodes are settled, an edge that leads back begins another pass through its loop. The condition of an edge is
evaluated once a pass, when its source settles, and the result is recorded: a later evaluation could differ.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.agent_workflow.definition import END, START, ErrorMode
from perdure.agent_workflow.state import ExecutionState, NodeState, Status
from perdure.graph.drawing.layers import find_back_edges


def lay_out(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, ...]], set[int]]:
    """Layers of nodes that may run at the same time, each in the order in which nodes were added, and the indexes of
    edges that lead back. An edge leads back if its target is on a path to its source."""
    after: dict[str, list[tuple[int, str]]] = {node: [] for node in nodes}
    for index, (source, target) in enumerate(edges):
        after[source].append((index, target))
    entered = {target for source, target in edges if source != target}
    roots = [node for node in nodes if node not in entered]
    back = find_back_edges([*roots, *nodes], after)
    before: dict[str, set[str]] = {node: set() for node in nodes}
    for index, (source, target) in enumerate(edges):
        if index not in back:
            before[target].add(source)
    layers: list[tuple[str, ...]] = []
    placed: set[str] = set()
    while len(placed) < len(nodes):
        layer = tuple(node for node in nodes if node not in placed and before[node] <= placed)
        layers.append(layer)
        placed.update(layer)
    return layers, back


def cycle_through(source: str, target: str, edges: Iterable[tuple[str, str]]) -> list[str]:
    """The nodes of a cycle that the edge from `source` back to `target` closes."""
    after: dict[str, list[str]] = {}
    for start, end in edges:
        after.setdefault(start, []).append(end)
    paths, seen = [[target]], {target}
    for path in paths:
        if path[-1] == source:
            return [*path, target]
        for node in after.get(path[-1], ()):
            if node not in seen:
                seen.add(node)
                paths.append([*path, node])
    return [source, target]


Test: TypeAlias = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class NodeEdge:
    source: str
    target: str
    test: Test | None = None
    """Of the source's outputs; None: the edge is always taken."""
    description: str | None = None
    is_default: bool = False
    delay: float | None = None
    kind: Literal["edge", "handoff", "fallback"] = "edge"
    name: str = field(default="", compare=False)
    """Its stored name, from EdgeGraph: it stays the same when the workflow gets more edges."""


class EdgeGraph:
    """The nodes and edges of one workflow."""

    def __init__(self, nodes: Sequence[str], edges: Sequence[NodeEdge]) -> None:
        self.nodes = tuple(nodes)
        self.edges = edges = tuple(_with_names(edges))
        self._fallbacks = {edge.source: edge.target for edge in edges if edge.kind == "fallback"}
        self.out_of = {node: [edge for edge in edges if edge.source == node] for node in (START, *nodes)}
        inner = [edge for edge in edges if edge.source != START and edge.target != END]
        stand_ins = [(source, edge.target) for edge in inner for source in self.sources(edge)[1:]]
        self.layers, back = lay_out(nodes, [*((edge.source, edge.target) for edge in inner), *stand_ins])
        self.layer_of = {node: index for index, layer in enumerate(self.layers) for node in layer}
        self.order = tuple(self.layer_of)
        self.back = [inner[index] for index in sorted(back) if index < len(inner)]
        """Edges that lead back: each closes a cycle."""
        self.into = {node: [edge for edge in edges if edge.target == node and edge not in self.back] for node in nodes}
        """Edges to each node, without those that lead back."""

    def reached_from(self, nodes: Sequence[str]) -> set[str]:
        """These nodes, and all nodes after them along edges that do not lead back."""
        reached = set(nodes)
        for node in self.order:
            if any(source in reached for edge in self.into[node] for source in self.sources(edge)):
                reached.add(node)
        return reached

    def sources(self, edge: NodeEdge) -> list[str]:
        """Nodes that must be settled before the edge can be decided."""
        return [edge.source] if edge.kind == "fallback" else [edge.source, *self._stand_ins(edge.source)]

    def _stand_ins(self, node: str) -> list[str]:
        """The chain of fallbacks that replace the node if it fails. Only fallbacks without own edges belong to it."""
        chain: list[str] = []
        while (fallback := self._fallbacks.get(node)) is not None and fallback not in chain:
            if any(edge.kind != "fallback" for edge in self.out_of[fallback]):
                break
            chain.append(fallback)
            node = fallback
        return chain

    def resolve_fallback(self, node: str, nodes: Mapping[str, NodeState]) -> str:
        """The node itself or, if it has failed, the fallback that replaces it."""
        for candidate in (node, *self._stand_ins(node)):
            state = nodes[candidate]
            # Until it settles, as in the pass before: an edge back was decided then.
            if (state.status if state.is_settled else state.last) != "failed":
                return candidate
        return node

    def deciding_node(self, edge: NodeEdge, nodes: Mapping[str, NodeState]) -> str:
        """The node whose outputs decide about the edge: its source or, if that has failed, its fallback."""
        return edge.source if edge.kind == "fallback" else self.resolve_fallback(edge.source, nodes)

    def is_failed(self, node: str, nodes: Mapping[str, NodeState]) -> bool:
        """Whether the node failed and no fallback replaced it."""
        if nodes[node].status != "failed":
            return False
        fallback = self._fallbacks.get(node)
        if fallback is None:
            return True
        is_covered = nodes[fallback].status == "failed" and not self.is_failed(fallback, nodes)
        return nodes[fallback].status != "done" and not is_covered

    def count(self, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
        """How many nodes succeeded, failed and were skipped, as events and results have it."""
        own = {name: node for name, node in nodes.items() if name != START}
        return {
            "successful_nodes": sum(node.has_succeeded for node in own.values()),
            "failed_nodes": sum(self.is_failed(name, nodes) for name in own),
            "skipped_nodes": sum(node.status == "skipped" and not node.has_succeeded for node in own.values()),
        }


def _with_names(edges: Iterable[NodeEdge]) -> Iterator[NodeEdge]:
    """Functions of the same name give equal names, which are numbered."""
    seen: Counter[str] = Counter()
    for edge in edges:
        name = f"{edge.source} > {edge.target}: {edge.kind} {edge.description or ''}".rstrip()
        seen[name] += 1
        yield replace(edge, name=name if seen[name] == 1 else f"{name} {seen[name]}")


@dataclass
class NextSteps:
    """The decisions of one evaluation of the state."""

    state: ExecutionState
    """With the nodes and the taken edges after the evaluation, which changes them in place."""
    ready: dict[str, list[NodeEdge]] = field(default_factory=dict)
    """Nodes that run now, each with the edges that led to it: edges that lead back come first."""
    skipped: list[str] = field(default_factory=list)
    traversed: list[NodeEdge] = field(default_factory=list)
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


@dataclass(kw_only=True)
class Planner:
    """Decides without side effects: the conductor carries its decisions out."""

    graph: EdgeGraph
    error_modes: Mapping[str, ErrorMode] = field(default_factory=dict)
    routers: Collection[str] = ()
    """A decision of a router counts as a change in every pass."""
    needs: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By node: the nodes whose outputs it may refer to, beside those that lead to it."""
    max_passes: int = 1
    converges: bool = True
    skips_unchanged: bool = True
    """Whether a node with an unchanged input keeps its last outputs instead of running again, if loops converge."""

    def begin(self, state: ExecutionState, input: Mapping[str, Any]) -> NextSteps:
        """`input`: the input of the execution, as outputs of START."""
        start = NodeState("done", dict(input), 1, has_changed=True)
        return self.advance(msgspec.structs.replace(state, nodes={START: start}))

    def settle(
        self, state: ExecutionState, node: str, status: Status, outputs: Mapping[str, Any], reason: str | None = None
    ) -> ExecutionState:
        """The state after a node has ended."""
        before = state.nodes[node]
        changed = node in self.routers or status != before.last or dict(outputs) != before.outputs
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
        back = [edge for edge in self.graph.back if edge.target == node and edge.name in state.back]
        digest = self._digest_input(node, [*back, *taken], state.nodes)
        if back or (not into and before.runs == 0):
            steps.start(node, digest, taken, back)
            return
        reason = self._reason_to_skip(into, taken, state)
        # A handoff is an action: its target runs in this pass, even with an unchanged input.
        is_handed_to = any(edge.kind == "handoff" and self._deciding_state(edge, state).has_changed for edge in taken)
        may_keep = self.skips_unchanged and self.converges
        is_unchanged = may_keep and before.last == "done" and before.input_digest == digest
        if reason is not None:
            changed = before.last not in (None, "skipped")
            # Other nodes may still refer to its outputs of an earlier pass.
            state.nodes[node] = msgspec.structs.replace(before, status="skipped", reason=reason, has_changed=changed)
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
            if has_failed and self.error_modes.get(edge.source) == "skip":
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
        if edge.name not in state.taken:
            if edge.is_default:
                siblings = self.graph.out_of[edge.source]
                others = [other for other in siblings if not other.is_default and other.kind != "fallback"]
                state.taken[edge.name] = not any(self._is_taken(other, state) for other in others)
            else:
                state.taken[edge.name] = edge.test is None or bool(edge.test(source.outputs))
        return state.taken[edge.name]

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
        copy = _copy_state(state, state.nodes)
        return [edge for edge in self.graph.edges if edge.target == END and self._is_taken(edge, copy)]

    def _begin_pass(self, steps: NextSteps) -> NextSteps:
        """All nodes are settled: an edge that leads back begins another pass."""
        state = steps.state
        taken = [edge for edge in self.graph.back if self._is_taken(edge, state)]
        if not taken:
            return steps
        if self.converges:  # each loop ends on its own: an unchanged one does not repeat because another continues
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
        graph, nodes = self.graph, dict[str, NodeState]()
        again = graph.reached_from([edge.target for edge in taken])
        for node, before in state.nodes.items():
            status, last = ("waiting", before.status) if node in again else (before.status, before.last)
            nodes[node] = msgspec.structs.replace(before, status=status, has_changed=False, last=last)
        evaluated_again = {edge.name for edge in graph.edges if again.intersection(graph.sources(edge))}
        return msgspec.structs.replace(
            state,
            nodes=nodes,
            taken={name: is_taken for name, is_taken in state.taken.items() if name not in evaluated_again},
            passes=state.passes + 1,
            back=tuple(edge.name for edge in taken),
        )


def _copy_state(state: ExecutionState, nodes: Mapping[str, NodeState]) -> ExecutionState:
    """The state with these nodes: an evaluation may change the copy."""
    return msgspec.structs.replace(state, nodes=dict(nodes), taken=dict(state.taken))
