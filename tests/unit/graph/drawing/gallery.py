"""Twenty graphs to draw, and their builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.graph.edges import Case, Default
from perdure.graph.executor import Executor, FunctionExecutor
from perdure.graph.graph import Graph, WorkflowExecutor
from perdure.workflows.builder import WorkflowBuilder


async def pass_on(message: Any) -> Any:
    return message


def node(name: str) -> Executor:
    return FunctionExecutor(pass_on, name, input=object, output=object)


@dataclass(frozen=True)
class Drawn:
    """Stands in for a workflow: what a WorkflowExecutor and WorkflowViz need of one."""

    graph: Graph


class Sketch:
    """Builds a graph from names: the first one is the start."""

    def __init__(self, start: str | Executor, name: str = "sketch") -> None:
        self._nodes: dict[str, Executor] = {}
        self._builder = WorkflowBuilder(name=name, start_executor=self._node(start))

    def _node(self, name_or_executor: str | Executor) -> Executor:
        if isinstance(name_or_executor, Executor):
            return self._nodes.setdefault(name_or_executor.id, name_or_executor)
        if name_or_executor not in self._nodes:
            self._nodes[name_or_executor] = node(name_or_executor)
        return self._nodes[name_or_executor]

    def chain(self, *names: str | Executor) -> Sketch:
        self._builder.add_chain([self._node(name) for name in names])
        return self

    def edge(self, source: str, target: str, condition: Callable[[Any], bool] | None = None) -> Sketch:
        self._builder.add_edge(self._node(source), self._node(target), condition)
        return self

    def fan_out(self, source: str, *targets: str | Executor) -> Sketch:
        self._builder.add_fan_out_edges(self._node(source), [self._node(target) for target in targets])
        return self

    def fan_in(self, sources: list[str], target: str) -> Sketch:
        self._builder.add_fan_in_edges([self._node(source) for source in sources], self._node(target))
        return self

    def select(self, source: str, function: Callable[[Any, list[str]], list[str]], *targets: str) -> Sketch:
        self._builder.add_multi_selection_edge_group(
            self._node(source), [self._node(target) for target in targets], function
        )
        return self

    def switch(self, source: str, *cases: tuple[str, str], default: str) -> Sketch:
        """Each case is the name of its condition and its target."""
        made: list[Case | Default] = [Case(named(name), self._node(target)) for name, target in cases]
        self._builder.add_switch_case_edge_group(self._node(source), [*made, Default(self._node(default))])
        return self

    def fallback(self, source: str, target: str) -> Sketch:
        self._builder.with_policy(self._node(source), on_error=self._node(target))
        return self

    def graph(self) -> Graph:
        return self._builder.graph()


def named(name: str) -> Callable[[Any], bool]:
    """A condition of that name."""

    def condition(message: Any) -> bool:
        return bool(message)

    condition.__name__ = name
    return condition


def child(name: str, graph: Graph) -> WorkflowExecutor:
    return WorkflowExecutor(Drawn(graph), name)


def choose_channels(message: Any, targets: list[str]) -> list[str]:
    return targets


def review_loop(name: str = "review") -> Graph:
    return Sketch("draft", name).chain("draft", "critic").edge("critic", "draft", named("needs_work")).edge(
        "critic", "polish", named("is_good")
    ).graph()  # fmt: skip


# ---------------------------------------------------------------- the twenty


def chain() -> Graph:
    return Sketch("fetch", "chain").chain("fetch", "parse", "summarise", "publish").graph()


def fan_out_and_in() -> Graph:
    sources = ["news", "papers", "forums"]
    return (
        Sketch("plan", "research").fan_out("plan", *sources).fan_in(sources, "merge").chain("merge", "report").graph()
    )


def switch() -> Graph:
    cases = ("is_spam", "quarantine"), ("needs_person", "ask_support"), ("is_invoice", "accounting")
    return Sketch("classify", "mail").switch("classify", *cases, default="archive").graph()


def multi_selection() -> Graph:
    sketch = Sketch("compose", "alerts").select("compose", choose_channels, "email", "sms", "push", "pager")
    return sketch.chain("email", "log").chain("sms", "log").graph()


def loop() -> Graph:
    return review_loop()


def self_loop() -> Graph:
    sketch = Sketch("poll", "polling").edge("poll", "poll", named("not_ready")).chain("poll", "download", "unpack")
    return sketch.edge("unpack", "unpack").graph()


def nested_once() -> Graph:
    inner = child("review", review_loop())
    return Sketch("outline", "book").chain("outline", inner, "print").graph()


def nested_twice() -> Graph:
    inner = Sketch("split", "chapter").chain("split", child("review", review_loop()), "bind").graph()
    sketch = Sketch("outline", "book").chain("outline", child("chapter", inner), "print")
    return sketch.edge("outline", "print").graph()


def two_children() -> Graph:
    left = child("research", fan_out_and_in())
    right = child("review", review_loop())
    return Sketch("brief", "two teams").fan_out("brief", left, right).fan_in(["research", "review"], "combine").graph()


def long_edges() -> Graph:
    sketch = Sketch("a", "long edges").chain("a", "b", "c", "d", "e").edge("a", "e").edge("a", "d", named("in_a_hurry"))
    return sketch.edge("b", "e").graph()


def wide_fan() -> Graph:
    workers = [f"worker-{number}" for number in range(1, 13)]
    return Sketch("spread", "wide fan").fan_out("spread", *workers).fan_in(workers, "collect").graph()


def diamond_in_diamond() -> Graph:
    sketch = Sketch("top", "diamonds").fan_out("top", "left", "right").fan_out("left", "inner-left", "inner-right")
    sketch.fan_in(["inner-left", "inner-right"], "inner-end").fan_in(["inner-end", "right"], "bottom")
    return sketch.graph()


def long_labels() -> Graph:
    sketch = Sketch("triage", "long labels")
    cases = (
        ("message_mentions_a_refund_and_the_order_is_recent", "refunds"),
        ("customer_has_been_waiting_for_more_than_two_days", "refunds"),
        ("message_is_written_in_a_language_nobody_here_reads", "translators"),
    )
    return sketch.switch("triage", *cases, default="translators").chain("refunds", "answer").graph()


def odd_names() -> Graph:
    names = [
        'say "hi" <b>&</b>',
        "tab\tand\nnewline",
        "発注を確認する",
        "end",
        "C:\\path\\",
        "x" * 90,
        "emoji 🚀 [1]{2}(3)|4|",
    ]
    sketch = Sketch(names[0], "odd & <names>").chain(*names[:5])
    sketch.edge(names[0], names[5], lambda message: True).edge(names[5], names[6], named('"quoted" > 1 & \x00 \ud800'))
    return sketch.graph()


def single() -> Graph:
    return Sketch("only", "single").graph()


def dense() -> Graph:
    sketch = Sketch("n00", "dense")
    for number in range(1, 15):
        sketch.edge(f"n{(number - 1) // 2:02}", f"n{number:02}")
    for source, target in ((1, 5), (2, 4), (3, 9), (3, 11), (4, 12), (5, 7), (6, 10), (6, 8), (7, 14), (11, 13)):
        sketch.edge(f"n{source:02}", f"n{target:02}")
    return sketch.edge("n12", "n02").edge("n13", "n01").graph()


def back_edge_in_a_child() -> Graph:
    inner = Sketch("try", "attempts").chain("try", "check", "accept").edge("check", "try", named("failed")).graph()
    sketch = Sketch("prepare", "retrying").chain("prepare", child("attempts", inner), "finish")
    return sketch.edge("finish", "prepare", named("another_round")).graph()


def fan_in_across_layers() -> Graph:
    sketch = Sketch("read", "layers").fan_out("read", "quick", "slow").chain("slow", "slower", "slowest")
    return sketch.fan_in(["quick", "slower", "slowest"], "sum").chain("sum", "write").graph()


def several_loops() -> Graph:
    sketch = Sketch("plan", "several loops").chain("plan", "write", "test", "release")
    sketch.edge("test", "write", named("fails")).edge("test", "plan", named("wrong_plan"))
    return sketch.edge("release", "plan", named("next_version")).graph()


def switch_that_loops() -> Graph:
    sketch = Sketch("ask", "switch that loops").chain("ask", "judge").chain("tool", "judge")
    return sketch.switch("judge", ("unclear", "ask"), ("needs_tool", "tool"), default="answer").graph()


GALLERY: dict[str, Callable[[], Graph]] = {
    build.__name__: build
    for build in (
        chain, fan_out_and_in, switch, multi_selection, loop, self_loop, nested_once, nested_twice, two_children,
        long_edges, wide_fan, diamond_in_diamond, long_labels, odd_names, single, dense, back_edge_in_a_child,
        fan_in_across_layers, several_loops, switch_that_loops,
    )
}  # fmt: skip
