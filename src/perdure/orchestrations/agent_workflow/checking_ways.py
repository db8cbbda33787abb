"""Can every node be come to, and every cycle be left?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from perdure.orchestrations.agent_workflow.definition import START
from perdure.orchestrations.agent_workflow.drafting import Draft
from perdure.orchestrations.agent_workflow.layout import cycle_through, lay_out
from perdure.orchestrations.agent_workflow.places import Problem, at


def ways_in(draft: Draft) -> list[tuple[str, str]]:
    """Every way from a node to a node: edges, handoffs and fallbacks."""
    nodes = draft.nodes
    pairs = [(edge.config.source, edge.config.target) for edge in draft.edges]
    for node_id, node in nodes.items():
        config = node.config
        pairs += [(node_id, one) for one in (*(one.target for one in config.handoffs), config.default_handoff) if one]
    pairs += _fallbacks_in(draft)
    return [(source, target) for source, target in dict.fromkeys(pairs) if source in nodes and target in nodes]


def _fallbacks_in(draft: Draft) -> list[tuple[str, str]]:
    errors = {node_id: node.config.on_error for node_id, node in draft.nodes.items()}
    return [(one, error.fallback) for one, error in errors.items() if error.mode == "fallback" and error.fallback]


def way_problems(draft: Draft) -> Iterator[Problem]:
    pairs = ways_in(draft)
    layout = lay_out(list(draft.nodes), pairs)
    back = [pairs[place] for place in sorted(layout.back)]
    fallbacks = set(_fallbacks_in(draft))
    ways = [cycle_through(*one, pairs) for one in back]
    cycles = [_drawn(one) for one in ways if not fallbacks.issuperset(pairwise(one))]  # those are told where they are
    yield from _apart(draft, pairs)
    if cycles and draft.settings.max_iterations is None:
        what = f"a cycle, {cycles[0]}" if len(cycles) == 1 else f"cycles, {' and '.join(cycles)}"
        how = "it may be gone through" if len(cycles) == 1 else "they may be gone through"
        yield "settings.max_iterations", f"missing: the workflow has {what}. Say how often {how}"


def _drawn(cycle: list[str]) -> str:
    return " -> ".join(cycle)


def _apart(draft: Draft, pairs: list[tuple[str, str]]) -> Iterator[Problem]:
    """Where edges from START say how a workflow begins, a cycle that nothing leads to was forgotten."""
    begun = [edge.config.target for edge in draft.edges if edge.config.source == START]
    if not begun:
        return
    entered = {target for source, target in pairs if source != target}
    reached = {node for node in draft.nodes if node in begun or node not in entered}
    left = list(reached)
    for node in left:
        new = dict.fromkeys(target for source, target in pairs if source == node and target not in reached)
        reached.update(new)
        left += new
    for node in draft.nodes:
        if node not in reached:
            yield at("agents", node), "no way leads to it from START. Add an edge to it, or take it out"
