"""A graph as the source of a Mermaid flowchart or a Graphviz digraph (DOT); WorkflowViz, which also writes files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from perdure.errors import MissingProgram
from perdure.graph.drawing.layout import to_line
from perdure.graph.drawing.picture import Link, Picture, Shape, UniqueNames, picture_of
from perdure.graph.drawing.svg import to_svg
from perdure.graph.graph import Graph

_ARROWS = {"plain": "-->", "conditional": "-.->", "fallback": "-.->"}

# Words that Mermaid does not accept as ids.
RESERVED = {"call", "class", "classdef", "click", "default", "direction", "end", "flowchart", "graph", "href",
             "interpolate", "linkstyle", "style", "subgraph"}  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z0-9 _.,/()'*+=!?-]|[^\x00-\x7f]")


def to_mermaid(graph: Graph, include_internal_executors: bool = False, *, with_names: bool = True) -> str:
    """The flowchart's source. Conditions are dashed and labelled, by name or alike; a fan-in is a node of its own."""
    picture = picture_of(graph, include_internal_executors=include_internal_executors, with_names=with_names)
    return "\n".join(["flowchart TD", *_MermaidWriter().lines(picture)])


class _MermaidWriter:
    def __init__(self) -> None:
        self._names = UniqueNames()
        self._links: list[str] = []
        self._starts: list[str] = []
        self._fallbacks: list[int] = []

    def lines(self, picture: Picture) -> Iterator[str]:
        yield from self._shapes(picture, "  ")
        # After all shapes: Mermaid draws a node where it is first named.
        yield from self._links
        yield "  classDef start fill:#d9f2e3,stroke:#1a7f4b,color:#0b3d24"
        yield f"  class {','.join(self._starts)} start"
        if self._fallbacks:
            yield f"  linkStyle {','.join(map(str, self._fallbacks))} stroke-dasharray:2 4"

    def _shapes(self, picture: Picture, indent: str) -> Iterator[str]:
        ids = [self._names.claim(_identifier(shape)) for shape in picture.shapes]
        for node_id, shape in zip(ids, picture.shapes, strict=True):
            if shape.inside is None:
                yield f"{indent}{node_id}{_outline(shape)}"
            else:
                yield f"{indent}subgraph {node_id}[{quote_mermaid(_title(shape))}]"
                yield from self._shapes(shape.inside, f"{indent}  ")
                yield f"{indent}end"
            if shape.is_start:
                self._starts.append(node_id)
        for link in picture.links:
            if link.kind == "fallback":
                self._fallbacks.append(len(self._links))
            arrow = _ARROWS[link.kind] + ("" if link.label is None else f"|{quote_mermaid(link.label)}|")
            if link.label == "conditional":
                arrow = "-. conditional .->"
            self._links.append(f"  {ids[link.source]} {arrow} {ids[link.target]};")


def _outline(shape: Shape) -> str:
    if shape.kind == "join":
        return f"(({shape.label}))"
    text = quote_mermaid(_title(shape))
    return f"([{text}]);" if shape.kind == "entry" else f"[{text}];"


def _title(shape: Shape) -> str:
    return f"{shape.label} (Start)" if shape.is_start else shape.label


def quote_mermaid(text: str) -> str:
    """The text in quotes. Characters with a meaning in Mermaid, HTML or Markdown become numbers."""
    return '"' + "".join(char if _PLAIN.match(char) else f"#{ord(char)};" for char in to_line(text)) + '"'


def _identifier(shape: Shape) -> str:
    path = f"fan_in__{shape.path}" if shape.kind == "join" else shape.path
    name = re.sub(r"[^A-Za-z0-9_]", "_", path.replace("/", "__"))
    return f"n_{name}" if name.lower() in RESERVED or not name[0].isalpha() else name


_STYLES: dict[str, dict[str, str]] = {"plain": {}, "conditional": {"style": "dashed"}, "fallback": {"style": "dotted"}}


def to_dot(graph: Graph, include_internal_executors: bool = False, *, with_names: bool = True) -> str:
    """The digraph's source: sub-workflows are clusters, conditions dashed and labelled, a fan-in a node of its own."""
    picture = picture_of(graph, include_internal_executors=include_internal_executors, with_names=with_names)
    lines = [
        "digraph Workflow {",
        "  rankdir=TD;",
        "  compound=true;",
        '  node [shape=box, style="rounded,filled", fillcolor="#f4f6f8", color="#5b6570", fontname="Helvetica"];',
        '  edge [color="#5b6570", fontname="Helvetica", fontsize=11];',
        *_DotWriter().draw(picture, "  ")[0],
        "}",
    ]
    return "\n".join(lines)


class _Ends(NamedTuple):
    """The nodes at which edges of a shape begin and end. Graphviz connects clusters only through nodes inside them."""

    first: str
    last: str
    cluster: str | None = None


class _DotWriter:
    def __init__(self) -> None:
        self._names = UniqueNames()
        self._clusters = 0

    def draw(self, picture: Picture, indent: str) -> tuple[list[str], _Ends]:
        drawn = [self._shape(shape, indent) for shape in picture.shapes]
        lines, ends = [line for shape_lines, _ in drawn for line in shape_lines], [end for _, end in drawn]
        lines += [f"{indent}{_edge(link, ends[link.source], ends[link.target])}" for link in picture.links]
        return lines, _ends_of(picture, ends)

    def _shape(self, shape: Shape, indent: str) -> tuple[list[str], _Ends]:
        if shape.inside is None:
            name = self._names.claim(to_line(f"fan_in::{shape.path}" if shape.kind == "join" else shape.path))
            return [f"{indent}{_quote_dot(name)}{_attributes(_look(shape))};"], _Ends(name, name)
        self._clusters += 1
        cluster = f"cluster_{self._clusters}"
        inner, ends = self.draw(shape.inside, f"{indent}  ")
        opening = [
            f"{indent}subgraph {cluster} {{",
            f"{indent}  label={_dot_title(shape, 'sub-workflow: ')};",
            f'{indent}  style="rounded"; color="#5b6570"; fontname="Helvetica";',
        ]
        return [*opening, *inner, f"{indent}}}"], _Ends(ends.first, ends.last, cluster)


def _ends_of(picture: Picture, ends: list[_Ends]) -> _Ends:
    """Links into the picture arrive at its start, and links out of it leave from its last shape without links."""
    start = next(number for number, shape in enumerate(picture.shapes) if shape.is_start)
    leaving = {link.source for link in picture.links}
    last = next((number for number in range(len(ends) - 1, -1, -1) if number not in leaving), start)
    return _Ends(ends[start].first, ends[last].last)


def _look(shape: Shape) -> dict[str, str]:
    if shape.kind == "join":
        return {"shape": "ellipse", "fillcolor": "lightgoldenrod", "label": _quote_dot(shape.label)}
    if shape.kind == "entry":
        return {"label": _dot_title(shape), "style": '"rounded,dashed"'}
    return {**({"fillcolor": "lightgreen"} if shape.is_start else {}), "label": _dot_title(shape)}


def _dot_title(shape: Shape, kind: str = "") -> str:
    return _quote_dot(kind + shape.label, *(["(Start)"] if shape.is_start else []))


def _edge(link: Link, source: _Ends, target: _Ends) -> str:
    attributes = _STYLES[link.kind] | ({} if link.label is None else {"label": _quote_dot(link.label)})
    if link.source != link.target:  # Graphviz cannot clip an edge at a cluster that contains both its ends
        attributes |= {"ltail": source.cluster} if source.cluster else {}
        attributes |= {"lhead": target.cluster} if target.cluster else {}
    return f"{_quote_dot(source.last)} -> {_quote_dot(target.first)}{_attributes(attributes)};"


def _attributes(attributes: Mapping[str, str]) -> str:
    return f" [{', '.join(f'{name}={value}' for name, value in attributes.items())}]" if attributes else ""


def _quote_dot(*lines: str) -> str:
    """The lines as a string. Backslashes and entities have a meaning in Graphviz, so they are escaped."""
    escaped = (to_line(line).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'


Format: TypeAlias = Literal["svg", "png", "pdf", "dot"]


class WorkflowViz:
    """Draws a workflow. Only `png` and `pdf` need another program: Graphviz.

    In its texts conditions have no names; `workflow.to_mermaid()` and `to_dot()` show them.
    """

    def __init__(self, workflow: Any) -> None:
        graph = getattr(workflow, "graph", None)
        if not isinstance(graph, Graph):
            raise TypeError(f"WorkflowViz draws a Workflow, got {workflow!r}.")
        self._graph = graph

    def to_mermaid(self, include_internal_executors: bool = False) -> str:
        return to_mermaid(self._graph, include_internal_executors, with_names=False)

    def to_digraph(self, include_internal_executors: bool = False) -> str:
        """The source of a Graphviz digraph (DOT)."""
        return to_dot(self._graph, include_internal_executors, with_names=False)

    def export(
        self,
        format: Format = "svg",
        filename: str | os.PathLike[str] | None = None,
        include_internal_executors: bool = False,
    ) -> str:
        """Write the drawing and return its path: `filename`, or a new temporary file.

        Raises RuntimeError for `png` and `pdf` where Graphviz is missing or fails; nothing is left behind then.
        """
        if format not in get_args(Format):
            raise ValueError(f"Unsupported format: {format}. Supported formats: {', '.join(get_args(Format))}.")
        if format == "svg":
            content = to_svg(self._graph, include_internal_executors=include_internal_executors).encode()
        else:
            content = self.to_digraph(include_internal_executors).encode()
        if format in ("png", "pdf"):
            content = _convert(content, format)
        if filename is None:
            handle, filename = tempfile.mkstemp(suffix=f".{format}", prefix="workflow-")
            os.close(handle)
        Path(filename).write_bytes(content)
        return str(Path(filename))

    def save_svg(self, filename: str | os.PathLike[str], include_internal_executors: bool = False) -> str:
        return self.export("svg", filename, include_internal_executors)

    def save_png(self, filename: str | os.PathLike[str], include_internal_executors: bool = False) -> str:
        return self.export("png", filename, include_internal_executors)

    def save_pdf(self, filename: str | os.PathLike[str], include_internal_executors: bool = False) -> str:
        return self.export("pdf", filename, include_internal_executors)


def _convert(source: bytes, format: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise MissingProgram(
            f"A {format} file is made by the program 'dot' of Graphviz, which is not on PATH. Nothing was written. "
            "Install Graphviz (https://graphviz.org/download), or export an svg, which needs nothing else."
        )
    done = subprocess.run([program, f"-T{format}"], input=source, capture_output=True, check=False)
    if done.returncode:
        output = done.stderr.decode(errors="replace").strip()
        raise MissingProgram(f"Graphviz failed to make a {format}, so nothing was written: {program}: {output!r}.")
    return done.stdout
