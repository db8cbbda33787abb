"""A draft as a Mermaid flowchart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from perdure.agent_workflow.definition import END, START, Draft, EdgeConfig, EdgeDraft, NodeDraft
from perdure.agent_workflow.execution.edge_graph import EdgeGraph
from perdure.graph.drawing.picture import UniqueNames
from perdure.graph.drawing.viz import RESERVED, quote_mermaid

_OUTLINES = {"agent": ("[", "]"), "router": ("{", "}"), "map": ("[[", "]]"), "workflow": ("[/", "/]")}
_ARROWS = {"plain": "-->", "dotted": "-.->", "handoff": "==>"}


@dataclass(frozen=True)
class _Link:
    source: str
    target: str
    label: str | None = None
    kind: Literal["plain", "dotted", "handoff"] = "plain"


def to_diagram(draft: Draft, graph: EdgeGraph) -> str:
    """The flowchart's source: conditions are labels, handoffs thick, defaults and fallbacks dotted."""
    names = UniqueNames()
    ids = {node: names.add(_identifier(node)) for node in (START, END, *draft.nodes)}
    links = list(_links(draft, graph))
    used = {end for link in links for end in (link.source, link.target)}
    lines = ["flowchart TD"]
    lines += [f"  {ids[node]}([{quote_mermaid(node)}])" for node in (START, END) if node in used]
    lines += [f"  {ids[node_id]}{_outline(node_id, node)}" for node_id, node in draft.nodes.items()]
    lines += [f"  {ids[link.source]} {_arrow(link)} {ids[link.target]}" for link in links]
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


def _arrow(link: _Link) -> str:
    arrow = _ARROWS[link.kind]
    return arrow if link.label is None else f"{arrow}|{quote_mermaid(link.label)}|"


def _links(draft: Draft, graph: EdgeGraph) -> Iterator[_Link]:
    edges = [_link_of(edge) for edge in draft.edges]
    handoffs = list(_handoffs(draft))
    fallbacks = {link.source: link.target for link in draft.links() if link.kind == "fallback"}
    back = {(edge.source, edge.target) for edge in graph.back}
    onward = [link for link in (*edges, *handoffs) if (link.source, link.target) not in back]
    entered = {*(link.target for link in onward), *fallbacks.values()}
    left = {*(link.source for link in onward), *fallbacks.values()}
    yield from (_Link(START, node) for node in draft.nodes if node not in entered)
    yield from edges
    yield from handoffs
    yield from (_Link(node, spare, f"{node} failed", "dotted") for node, spare in fallbacks.items())
    yield from _links_of_fallbacks(onward, fallbacks)
    yield from (_Link(node, END) for node in draft.nodes if node not in left)


def _link_of(edge: EdgeDraft) -> _Link:
    config = edge.config
    words = list(_conditions(config))
    if edge.predicate is not None:
        words.append(str(getattr(edge.predicate, "__name__", edge.predicate)))
    label = " and ".join(words)
    if config.is_default:
        label = "default"
    if config.delay is not None:
        label = f"{label}, after {config.delay:g} s" if label else f"after {config.delay:g} s"
    return _Link(config.source, config.target, label or None, "dotted" if config.is_default else "plain")


def _conditions(config: EdgeConfig) -> Iterator[str]:
    if config.when is not None:
        yield str(config.when)
    if config.predicate is not None:
        yield config.predicate
    if config.matched_type is not None:
        yield f"is {config.matched_type}"


def _handoffs(draft: Draft) -> Iterator[_Link]:
    for link in draft.links():
        if link.handoff is not None:
            yield _Link(link.source, link.target, link.handoff.description or "handoff", "handoff")
        elif link.kind == "default_handoff":
            yield _Link(link.source, link.target, "default", "dotted")


def _links_of_fallbacks(onward: list[_Link], fallbacks: dict[str, str]) -> Iterator[_Link]:
    """A fallback without own edges continues where the node that it replaces would have continued."""
    own = {link.source for link in onward}
    for node, spare in fallbacks.items():
        if spare in own:
            continue
        targets = dict.fromkeys(link.target for link in onward if link.source == node)
        yield from (_Link(spare, target, f"in place of {node}", "dotted") for target in targets or (END,))
