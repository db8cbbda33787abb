"""The lines of drawings that programs look for."""

from typing import Any, Never

from flows import Executor, WorkflowBuilder, WorkflowContext, WorkflowExecutor, WorkflowViz, handler


class Send(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None: ...


class Join(Executor):
    @handler
    async def take(self, message: list[str], ctx: WorkflowContext[Never, str]) -> None: ...


async def main() -> Any:
    a, b, c, d, e = Send("a"), Send("b"), Send("c"), Join("d"), Send("e")
    child = WorkflowExecutor(WorkflowBuilder(start_executor=Send("inner")).build(), id="child")
    builder = WorkflowBuilder(start_executor=a).add_fan_out_edges(a, [b, c]).add_fan_in_edges([b, c], d)
    viz = WorkflowViz(builder.add_edge(b, e, condition=lambda message: True).add_edge(c, child).build())
    mermaid, dot = viz.to_mermaid(), viz.to_digraph()
    [join] = [line.split("((fan-in))")[0].strip() for line in mermaid.splitlines() if "((fan-in))" in line]
    drawn = ["flowchart TD", 'a["a (Start)"]', 'b["b"]', "a --> b", f"b --> {join}", f"{join} --> d"]
    nodes = ["digraph Workflow {", '"a" [fillcolor=lightgreen, label="a\\n(Start)"];', '"b" [label="b"];']
    edges = ['"a" -> "b";', '"b" -> "e" [style=dashed, label="conditional"];']
    more = ["shape=ellipse", 'label="fan-in"', "subgraph cluster_", 'label="sub-workflow: child', '"child/inner"']
    try:
        viz.export(format="gif")
    except ValueError as error:
        words = "Unsupported format: gif. Supported formats: svg, png, pdf, dot" in str(error)
    return [
        [text in mermaid for text in (*drawn, "b -. conditional .-> e", "subgraph child")],
        [text in dot for text in (*nodes, *edges, *more)],
        words,
        viz.export(format="dot").endswith(".dot"),
    ]
