"""WorkflowViz: drawings as text and as files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.graph.drawing.gallery import Drawn, node, review_loop

from perdure import WorkflowBuilder
from perdure.graph.drawing.svg import to_svg
from perdure.graph.drawing.viz import WorkflowViz, to_dot, to_mermaid


@pytest.fixture
def viz() -> WorkflowViz:
    return WorkflowViz(Drawn(review_loop()))


@pytest.fixture
def no_graphviz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def install_dot(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """A program of that name on PATH, since Graphviz itself may not be there."""
    program = folder / "dot"
    program.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_viz_returns_mermaid_and_graphviz_text(viz: WorkflowViz) -> None:
    assert viz.to_mermaid() == to_mermaid(review_loop(), with_names=False)
    assert viz.to_digraph() == to_dot(review_loop(), with_names=False)
    assert "internal:draft" in viz.to_digraph(include_internal_executors=True)
    assert "internal_draft" in viz.to_mermaid(include_internal_executors=True)


@pytest.mark.usefixtures("no_graphviz")
def test_svg_and_dot_files_need_no_other_program(viz: WorkflowViz, tmp_path: Path) -> None:
    assert viz.save_svg(tmp_path / "one.svg") == str(tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_text("utf-8") == to_svg(review_loop())
    viz.export("dot", str(tmp_path / "one.dot"), include_internal_executors=True)
    assert (tmp_path / "one.dot").read_text("utf-8") == viz.to_digraph(include_internal_executors=True)


def test_without_a_filename_a_temporary_file_is_made(
    viz: WorkflowViz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = Path(viz.export())
    assert path.parent == tmp_path and path.suffix == ".svg"
    assert path.read_text("utf-8") == to_svg(review_loop())


@pytest.mark.parametrize("format", ["png", "pdf"])
def test_png_and_pdf_are_made_by_graphviz(
    viz: WorkflowViz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    install_dot(monkeypatch, tmp_path, "sys.stdout.write(sys.argv[1] + ' of ' + sys.stdin.read())")
    save = viz.save_png if format == "png" else viz.save_pdf
    path = Path(save(tmp_path / f"one.{format}"))
    assert path.read_text("utf-8") == f"-T{format} of {viz.to_digraph()}"


@pytest.mark.usefixtures("no_graphviz")
def test_png_without_graphviz_is_rejected_with_advice(viz: WorkflowViz, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"png file is made by the program 'dot' .* not on PATH.*export an svg"):
        viz.save_png(tmp_path / "one.png")
    assert not (tmp_path / "one.png").exists()


def test_graphviz_error_is_raised_with_its_message(
    viz: WorkflowViz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dot(monkeypatch, tmp_path, "sys.exit('no renderer')")
    with pytest.raises(RuntimeError, match=r"failed to make a pdf, so nothing was written: .*: 'no renderer'"):
        viz.save_pdf(tmp_path / "one.pdf")
    assert not (tmp_path / "one.pdf").exists()


def test_an_unknown_format_is_rejected(viz: WorkflowViz) -> None:
    with pytest.raises(ValueError, match=r"Unsupported format: gif. Supported formats: svg, png, pdf, dot"):
        viz.export("gif")  # type: ignore[arg-type]  # deliberately wrong


def test_a_workflow_draws_itself() -> None:
    workflow = WorkflowBuilder(name="one", start_executor=node("only")).build()
    assert workflow.to_mermaid() == to_mermaid(workflow.graph)
    assert workflow.to_dot(include_internal_executors=True) == to_dot(workflow.graph, include_internal_executors=True)
    assert workflow._repr_svg_() == workflow.to_svg() == to_svg(workflow.graph)
    assert workflow.to_svg(outcomes={"only": "failed"}) == to_svg(workflow.graph, outcomes={"only": "failed"})


def test_object_without_a_graph_is_rejected() -> None:
    with pytest.raises(TypeError, match="WorkflowViz draws a Workflow, got 'text'"):
        WorkflowViz("text")
