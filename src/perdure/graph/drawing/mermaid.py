"""A graph as a Mermaid flowchart: text that GitHub, editors and documentation tools draw."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.graph.drawing.picture import Link, Picture, Shape, UniqueNames, picture_of
from perdure.graph.drawing.text import shown
from perdure.graph.graph import Graph

_ARROWS = {"plain": "-->", "conditional": "-.->", "fallback": "-.->"}

# Words that Mermaid would read as part of its own language where an id stands.
RESERVED = {"call", "class", "classdef", "click", "default", "direction", "end", "flowchart", "graph", "href",
             "interpolate", "linkstyle", "style", "subgraph"}  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z0-9 _.,/()'*+=!?-]|[^\x00-\x7f]")


def to_mermaid(graph: Graph, include_internal_executors: bool = False) -> str:
    """The flowchart's source. Conditions are dashed and labelled; a fan-in is a node of its own."""
    picture = picture_of(graph, include_internal_executors=include_internal_executors)
    return "\n".join(["flowchart TD", *_MermaidWriter().lines(picture)]) + "\n"


class _MermaidWriter:
    def __init__(self) -> None:
        self._names = UniqueNames()
        self._links: list[str] = []
        self._starts: list[str] = []
        self._fallbacks: list[int] = []

    def lines(self, picture: Picture) -> Iterator[str]:
        yield from self._shapes(picture, "  ")
        # After all shapes: a node that is first named in a link would be drawn where the link stands.
        yield from self._links
        yield "  classDef start fill:#d9f2e3,stroke:#1a7f4b,color:#0b3d24"
        yield f"  class {','.join(self._starts)} start"
        if self._fallbacks:
            yield f"  linkStyle {','.join(map(str, self._fallbacks))} stroke-dasharray:2 4"

    def _shapes(self, picture: Picture, indent: str) -> Iterator[str]:
        ids = [self._names.add(_identifier(shape)) for shape in picture.shapes]
        for node_id, shape in zip(ids, picture.shapes, strict=True):
            if shape.inside is None:
                yield f"{indent}{node_id}{_outline(shape)}"
            else:
                yield f"{indent}subgraph {node_id}[{quoted(_title(shape))}]"
                yield from self._shapes(shape.inside, f"{indent}  ")
                yield f"{indent}end"
            if shape.is_start:
                self._starts.append(node_id)
        for link in picture.links:
            if link.kind == "fallback":
                self._fallbacks.append(len(self._links))
            self._links.append(f"  {ids[link.source]} {_arrow(link)} {ids[link.target]}")


def _arrow(link: Link) -> str:
    arrow = _ARROWS[link.kind]
    return arrow if link.label is None else f"{arrow}|{quoted(link.label)}|"


def _outline(shape: Shape) -> str:
    text = quoted(_title(shape))
    if shape.kind == "join":
        return f"(({text}))"
    return f"([{text}])" if shape.kind == "entry" else f"[{text}]"


def _title(shape: Shape) -> str:
    return f"{shape.label} (Start)" if shape.is_start else shape.label


def quoted(text: str) -> str:
    """Whatever could end the text, start an entity, HTML, Markdown or a directive is written as a number."""
    return '"' + "".join(one if _PLAIN.match(one) else f"#{ord(one)};" for one in shown(text)) + '"'


def _identifier(shape: Shape) -> str:
    path = f"fan_in_{shape.path}" if shape.kind == "join" else shape.path
    made = re.sub(r"[^A-Za-z0-9_]", "_", path.replace("/", "__"))
    return f"n_{made}" if made.lower() in RESERVED or not made[0].isalpha() else made
