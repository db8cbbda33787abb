"""The signature of a graph: readable, the same in every process, and different where a checkpoint would not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.flows import Countdown, Tally, relay, sink

from perdure import Case, Default, Executor, Workflow, WorkflowBuilder, WorkflowContext, executor
from perdure.graph.validation import differences

SCRIPT = """
from dataclasses import dataclass
from perdure import Executor, WorkflowBuilder, WorkflowContext, executor, handler

class Start(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str]) -> None: ...

@executor
async def end(message: str, ctx: WorkflowContext) -> None: ...

def is_long(message: str) -> bool:
    return len(message) > 5

start = Start("start")
workflow = WorkflowBuilder(name="script", start_executor=start).add_edge(start, end, is_long).build()
if __name__ == "__main__":
    print(workflow.graph_signature_hash)
"""


def is_long(message: str) -> bool:
    return len(message) > 5


def pick(message: object, targets: list[str]) -> list[str]:
    return targets


@executor(id="end")
async def last(message: str, ctx: WorkflowContext) -> None: ...


def a_graph(
    condition: Any = is_long, start: Executor | None = None, end: Executor = last, extra: Executor | None = None
) -> Workflow:
    first = start or Tally("start")
    builder = WorkflowBuilder(name="graph", start_executor=first).add_edge(first, end, condition)
    if extra is not None:
        builder.add_edge(end, extra)
    return builder.build()


def test_the_signature_can_be_read() -> None:
    assert a_graph().graph_signature == {
        "start": "start",
        "executors": {
            "start": "tests.unit.engine.flows:Tally",
            "end": "tests.unit.graph.test_signature:last",
        },
        "edges": ["Single: start->end if is_long"],
    }


def test_every_kind_of_edge_shows_its_kind_and_its_function() -> None:
    a, b, c, d = relay("a"), relay("b"), relay("c"), sink("d", accepts=list)
    builder = WorkflowBuilder(start_executor=a).add_multi_selection_edge_group(a, [b, c], pick)
    builder.add_switch_case_edge_group(b, [Case(is_long, a), Default(c)]).add_fan_in_edges([b, c], d)
    assert builder.build().graph_signature["edges"] == [
        "FanIn: b->d",
        "FanIn: c->d",
        "FanOut by pick: a->b",
        "FanOut by pick: a->c",
        "SwitchCase: b->a if is_long",
        "SwitchCase: b->c if default",
    ]


def test_signature_is_plain_json_and_equal_graphs_have_equal_hashes() -> None:
    first, second = a_graph(), a_graph()
    assert json.loads(json.dumps(first.graph_signature)) == first.graph_signature
    assert first.graph_signature_hash == second.graph_signature_hash
    assert len(first.graph_signature_hash) == 64


def test_the_order_in_which_edges_were_added_does_not_matter() -> None:
    def built(*targets: str) -> Workflow:
        made = {name: sink(name) for name in ("b", "c")}
        start = relay("a")
        builder = WorkflowBuilder(start_executor=start)
        for target in targets:
            builder.add_edge(start, made[target])
        return builder.build()

    assert built("b", "c").graph_signature_hash == built("c", "b").graph_signature_hash


def changed_condition() -> Workflow:
    return a_graph(condition=bool)


def changed_class() -> Workflow:
    return a_graph(start=Countdown("start"), end=relay("end"))


def changed_start() -> Workflow:
    return a_graph(start=Tally("begin"))


def added_executor() -> Workflow:
    return a_graph(extra=sink("extra"))


@pytest.mark.parametrize("change", [changed_condition, changed_class, changed_start, added_executor])
def test_another_structure_has_another_hash(change: Any) -> None:
    assert change().graph_signature_hash != a_graph().graph_signature_hash


@pytest.mark.parametrize(
    ("change", "breaking", "added"),
    [
        (a_graph, [], []),
        (added_executor, [], ["executor 'extra' is new", "edge 'Single: end->extra' is new"]),
        (
            changed_condition,
            ["edge 'Single: start->end if is_long' is gone"],
            ["edge 'Single: start->end if bool' is new"],
        ),
        (
            changed_start,
            [
                "the start executor was 'start' and is 'begin'",
                "executor 'start' is gone",
                "edge 'Single: start->end if is_long' is gone",
            ],
            ["executor 'begin' is new", "edge 'Single: begin->end if is_long' is new"],
        ),
    ],
)
def test_differences_separate_breaking_changes_from_additions(
    change: Any, breaking: list[str], added: list[str]
) -> None:
    assert differences(a_graph().graph_signature, change().graph_signature) == (breaking, added)


def test_an_executor_of_another_class_is_named_with_both_classes() -> None:
    breaking, _ = differences(a_graph().graph_signature, changed_class().graph_signature)
    was_and_is = "was a tests.unit.engine.flows:Tally and is a tests.unit.engine.flows:Countdown"
    assert f"executor 'start' {was_and_is}" in breaking


def test_a_script_has_the_same_hash_run_and_imported(tmp_path: Path) -> None:
    (tmp_path / "my_script.py").write_text(SCRIPT)
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}

    def printed(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    hashes = {
        printed("my_script.py"),
        printed("-m", "my_script"),
        printed("-c", "import my_script; print(my_script.workflow.graph_signature_hash)"),
    }
    assert len(hashes) == 1 and len(hashes.pop()) == 64
