"""A draft as a Mermaid flowchart."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TypeAlias

from perdure.agent_workflow.definition import END, START, Draft, EdgeDraft, NodeDraft, NodeLink
from perdure.graph.drawing.picture import UniqueNames
from perdure.graph.drawing.viz import RESERVED, quote_mermaid

_OUTLINES = {"agent": ("[", "]"), "router": ("{", "}"), "map": ("[[", "]]"), "workflow": ("[/", "/]")}
_PLAIN, _DOTTED, _THICK = "-->", "-.->", "==>"
_Arrow: TypeAlias = tuple[str, str, str, str | None]
"""Source, target, line and label."""


def to_diagram(draft: Draft, back: Collection[tuple[str, str]]) -> str:
    """The flowchart's source: conditions are labels, handoffs thick, defaults and fallbacks dotted. `back`: the ends of
    edges that lead back."""
    names = UniqueNames()
    ids = {node: names.claim(_identifier(node)) for node in (START, END, *draft.nodes)}
    arrows = list(_arrows(draft, back))
    used = {end for arrow in arrows for end in arrow[:2]}
    lines = ["flowchart TD"]
    lines += [f"  {ids[node]}([{quote_mermaid(node)}])" for node in (START, END) if node in used]
    lines += [f"  {ids[node_id]}{_outline(node_id, node)}" for node_id, node in draft.nodes.items()]
    for source, target, line, label in arrows:
        lines.append(f"  {ids[source]} {line}{'' if label is None else f'|{quote_mermaid(label)}|'} {ids[target]}")
    return "\n".join(lines) + "\n"


def _identifier(node: str) -> str:
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", node)
    is_usable = identifier[:1].isalpha() and identifier.lower() not in RESERVED
    return identifier if is_usable else f"n_{identifier}"


def _outline(node_id: str, node: NodeDraft) -> str:
    config = node.config
    marks, kind = [], "agent"
    inner = node.workflow if node.workflow is not None else config.workflow
    if inner is not None:
        kind = "workflow"
        marks.append(f"workflow {inner if isinstance(inner, str) else inner.name}")
    elif config.handoffs or config.default_handoff is not None:
        kind = "router"
        marks.append("router")
    if config.map is not None:
        kind = "map" if kind == "agent" else kind
        marks.append(f"for each of {config.map.over}")
    if config.approval is not None:
        marks.append(f"approval: {config.approval.message}")
    first, last = _OUTLINES[kind]
    title = f"{node_id} ({'; '.join(marks)})" if marks else node_id
    return f"{first}{quote_mermaid(title)}{last}"


def _arrows(draft: Draft, back: Collection[tuple[str, str]]) -> Iterator[_Arrow]:
    links = sorted(draft.links(), key=lambda link: link.kind == "fallback")
    fallbacks = {link.source: link.target for link in links if link.kind == "fallback"}
    onward = [link for link in links if link.kind != "fallback" and (link.source, link.target) not in back]
    entered = {*(link.target for link in onward), *fallbacks.values()}
    left = {*(link.source for link in onward), *fallbacks.values()}
    yield from ((START, node, _PLAIN, None) for node in draft.nodes if node not in entered)
    yield from map(_arrow_of, links)
    for node, spare in fallbacks.items():
        # A fallback without own edges continues where the node that it replaces would have continued.
        if not any(link.source == spare for link in onward):
            targets = dict.fromkeys(link.target for link in onward if link.source == node)
            yield from ((spare, target, _DOTTED, f"in place of {node}") for target in targets or (END,))
    yield from ((node, END, _PLAIN, None) for node in draft.nodes if node not in left)


def _arrow_of(link: NodeLink) -> _Arrow:
    if link.edge is not None:
        line = _DOTTED if link.edge.config.is_default else _PLAIN
        return link.source, link.target, line, _label_of(link.edge)
    if link.handoff is not None:
        return link.source, link.target, _THICK, link.handoff.description or "handoff"
    label = "default" if link.kind == "default_handoff" else f"{link.source} failed"
    return link.source, link.target, _DOTTED, label


def _label_of(edge: EdgeDraft) -> str | None:
    config = edge.config
    words = [str(config.when)] if config.when is not None else []
    words += [config.predicate] if config.predicate is not None else []
    words += [f"is {config.matched_type}"] if config.matched_type is not None else []
    if edge.predicate is not None:
        words.append(str(getattr(edge.predicate, "__name__", edge.predicate)))
    label = "default" if config.is_default else " and ".join(words)
    if config.delay is not None:
        label = f"{label}, after {config.delay:g} s" if label else f"after {config.delay:g} s"
    return label or None
