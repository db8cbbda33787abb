"""Do edges lead where they can, under conditions that can hold?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.agent_workflow.builder.draft import Draft, EdgeDraft, NodeDraft
from perdure.agent_workflow.checks.outputs import given_outputs, has_field, outputs_known
from perdure.agent_workflow.definition.conditions import Condition
from perdure.agent_workflow.definition.config import END, START
from perdure.agent_workflow.definition.references import type_title
from perdure.agent_workflow.documents.rules import Problem, at
from perdure.errors import did_you_mean


def edge_problems(draft: Draft) -> Iterator[Problem]:
    defaults: dict[str, int] = {}
    for index, edge in enumerate(draft.edges):
        place, config = at("edges", index), edge.config
        yield from _ends(edge, place, list(draft.nodes))
        before = next((other for other in range(index) if draft.edges[other] == edge), None)
        if before is not None:
            yield place, f"the same as {at('edges', before)}"
        elif config.is_default:
            yield from _default(edge, index, defaults)
        if config.matched_type is not None:
            yield from _matched_type(config.source, config.matched_type, f"{place}.matched_type", draft)
        if config.when is not None:
            yield from condition_problems(
                config.when, f"{place}.when", config.source, speakers_of(config.source, draft)
            )


def _ends(edge: EdgeDraft, place: str, nodes: Sequence[str]) -> Iterator[Problem]:
    source, target = edge.config.source, edge.config.target
    if source == END:
        yield f"{place}.from", "nothing comes after END: it stands for the end of the execution"
    elif source != START and source not in nodes:
        yield f"{place}.from", no_node(source, [*nodes, START])
    if target == START:
        yield f"{place}.to", "nothing leads to START: it stands for what the execution was given"
    elif target != END and target not in nodes:
        yield f"{place}.to", no_node(target, [*nodes, END])
    elif target == END and source == START:
        yield place, "leads from START to END, past every node"


def no_node(name: str, known: Sequence[str]) -> str:
    return f"there is no node {name!r}{did_you_mean(name, known)}"


def _default(edge: EdgeDraft, index: int, defaults: dict[str, int]) -> Iterator[Problem]:
    config, place = edge.config, f"{at('edges', index)}.default"
    first = defaults.setdefault(config.source, index)
    if first != index:
        yield place, f"{config.source!r} has a default edge already: {at('edges', first)}"
    if config.when is not None or edge.predicate is not None or config.predicate or config.matched_type is not None:
        yield place, f"a default edge has no condition: it is taken if no other edge of {config.source!r} is"


# ---------------------------------------------------------------- conditions


def speakers_of(source: str, draft: Draft) -> list[NodeDraft]:
    """Those whose outputs decide about edges of a node: it and, should it fail, its fallback. None: it is unknown."""
    node = draft.nodes.get(source)
    if node is None:
        return []
    fallback = draft.nodes.get(node.config.on_error.fallback or "")
    return [node] if fallback is None else [node, fallback]


def condition_problems(
    when: Condition, place: str, source: str, speakers: Sequence[NodeDraft], *, is_approval: bool = False
) -> Iterator[Problem]:
    """Fields that the outputs do not have, where that is known."""
    known: list[str] = []
    for node in speakers:
        outputs = given_outputs(node) if is_approval else outputs_known(node)
        if outputs is None:
            return
        known += outputs
    if known:
        yield from _fields(when, place, source, list(dict.fromkeys(known)))


def _fields(when: Condition, place: str, source: str, known: Sequence[str]) -> Iterator[Problem]:
    if when.field is not None and not has_field(when.field, known):
        hint = did_you_mean(when.field, known)
        yield f"{place}.field", f"{source!r} has no output {when.field!r}{hint}. It has: {', '.join(known)}"
    for index, one in enumerate(when.conditions):
        yield from _fields(one, f"{place}.conditions[{index}]", source, known)


def _matched_type(source: str, wanted: str, place: str, draft: Draft) -> Iterator[Problem]:
    node = draft.nodes.get(source)
    if node is None:
        if source == START:
            yield place, "what the execution was given has no type: START has no union output"
        return
    if node.config.output_mode != "union" or node.config.map is not None:
        yield place, f"{source!r} has no union output, so that nothing is routed by its type"
        return
    names = [type_title(one) for one in node.types]
    if names and wanted not in names:
        hint = did_you_mean(wanted, names)
        yield place, f"{wanted!r} is no type that {source!r} gives{hint}. It gives: {', '.join(names)}"
