"""WorkflowViz: drawings of a workflow as text and as files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Literal, TypeAlias

from perdure.errors import MissingProgram
from perdure.graph.drawing.markup import to_dot, to_mermaid
from perdure.graph.drawing.svg import to_svg
from perdure.graph.graph import Graph

Format: TypeAlias = Literal["svg", "png", "pdf", "dot"]

_FORMATS = ("svg", "png", "pdf", "dot")


class WorkflowViz:
    """Draws a workflow. Only `png` and `pdf` need another program: Graphviz."""

    def __init__(self, workflow: Any) -> None:
        graph = getattr(workflow, "graph", None)
        if not isinstance(graph, Graph):
            raise TypeError(f"WorkflowViz draws a Workflow, got {workflow!r}.")
        self._graph = graph

    def to_mermaid(self, include_internal_executors: bool = False) -> str:
        return to_mermaid(self._graph, include_internal_executors)

    def to_digraph(self, include_internal_executors: bool = False) -> str:
        """The source of a Graphviz digraph (DOT)."""
        return to_dot(self._graph, include_internal_executors)

    def export(
        self,
        format: Format = "svg",
        filename: str | os.PathLike[str] | None = None,
        include_internal_executors: bool = False,
    ) -> str:
        """Write the drawing and return its path: `filename`, or a new temporary file.

        Raises RuntimeError for `png` and `pdf` where Graphviz is missing or fails; nothing is left behind then.
        """
        if format not in _FORMATS:
            raise ValueError(f"export(format=...): expected one of {', '.join(_FORMATS)}, got {format!r}.")
        if format == "svg":
            content = to_svg(self._graph, include_internal_executors=include_internal_executors).encode()
        else:
            content = to_dot(self._graph, include_internal_executors).encode()
        if format in ("png", "pdf"):
            content = _convert(content, format)
        path = Path(filename) if filename is not None else _temporary_file(format)
        path.write_bytes(content)
        return str(path)

    def save_svg(self, filename: str | os.PathLike[str], include_internal_executors: bool = False) -> str:
        return self.export("svg", filename, include_internal_executors)

    def save_png(self, filename: str | os.PathLike[str], include_internal_executors: bool = False) -> str:
        return self.export("png", filename, include_internal_executors)

    def save_pdf(self, filename: str | os.PathLike[str], include_internal_executors: bool = False) -> str:
        return self.export("pdf", filename, include_internal_executors)


def _temporary_file(suffix: str) -> Path:
    handle, name = tempfile.mkstemp(suffix=f".{suffix}", prefix="workflow-")
    os.close(handle)
    return Path(name)


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
