"""WorkflowBuilder: both generations of its methods make one graph, and mistakes are refused where they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.flows import function, relay, sink

from perdure import (
    Case,
    Default,
    DuplicateExecutorId,
    FanInEdgeGroup,
    FanOutEdgeGroup,
    FunctionExecutor,
    GraphConnectivityError,
    InMemoryCheckpointStorage,
    InvalidRun,
    SingleEdgeGroup,
    SwitchCaseEdgeGroup,
    WorkflowBuilder,
)


def test_the_constructor_and_the_methods_make_the_same_workflow() -> None:
    a, b, storage = relay("a"), sink("b"), InMemoryCheckpointStorage()
    newer = (
        WorkflowBuilder(7, "pair", "two of them", start_executor=a, checkpoint_storage=storage).add_edge(a, b).build()
    )
    older = WorkflowBuilder(name="pair", description="two of them").set_start_executor(a).set_max_iterations(7)
    built = older.with_checkpointing(storage).add_edge(a, b).build()
    assert {
        **built.to_dict(),
        "id": newer.id,
    } == newer.to_dict() and built.graph_signature_hash == newer.graph_signature_hash


def a_switch(builder: WorkflowBuilder, a: Any, b: Any, c: Any) -> WorkflowBuilder:
    return builder.add_switch_case_edge_group(a, [Case(bool, b), Default(c)])


@pytest.mark.parametrize(
    ("add", "kind", "edges"),
    [
        (lambda w, a, b, c: w.add_edge(a, b).add_edge(a, c), SingleEdgeGroup, ["a->b", "a->c"]),
        (lambda w, a, b, c: w.add_fan_out_edges(a, [b, c]), FanOutEdgeGroup, ["a->b", "a->c"]),
        (lambda w, a, b, c: w.add_multi_selection_edge_group(a, [b, c], pick), FanOutEdgeGroup, ["a->b", "a->c"]),
        (lambda w, a, b, c: w.add_chain([a, b, c]), SingleEdgeGroup, ["a->b", "b->c"]),
        (a_switch, SwitchCaseEdgeGroup, ["a->b", "a->c"]),
    ],
    ids=["edge", "fan out", "multi selection", "chain", "switch"],
)
def test_each_method_adds_its_kind_of_edge(add: Callable[..., WorkflowBuilder], kind: type, edges: list[str]) -> None:
    a, b, c = relay("a"), relay("b"), sink("c")
    workflow = add(WorkflowBuilder(start_executor=a), a, b, c).build()
    assert {type(group) for group in workflow.graph.edge_groups} == {kind}
    assert [edge.id for group in workflow.graph.edge_groups for edge in group.edges] == edges


def pick(message: object, targets: list[str]) -> list[str]:
    return targets[:1]


def test_a_fan_in_is_one_group_with_its_sources_in_order() -> None:
    a, b, c, d = relay("a"), relay("b"), relay("c"), sink("d", accepts=list)
    builder = WorkflowBuilder(start_executor=a).add_fan_out_edges(a, [b, c]).add_fan_in_edges([c, b], d)
    group = builder.build().graph.edge_groups[1]
    assert isinstance(group, FanInEdgeGroup)
    assert (group.source_executor_ids, group.target_executor_ids) == (["c", "b"], ["d"])


def test_an_edge_group_has_the_same_id_in_every_build() -> None:
    def ids() -> list[str]:
        a, b = relay("a"), sink("b")
        return [group.id for group in WorkflowBuilder(start_executor=a).add_edge(a, b).build().graph.edge_groups]

    assert ids() == ids() == ["SingleEdgeGroup/a->b"]


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda w, a, b: w.add_fan_out_edges(a, [b]), "FanOutEdgeGroup must contain at least two targets"),
        (lambda w, a, b: w.add_fan_in_edges([a], b), "FanInEdgeGroup must contain at least two sources"),
        (lambda w, a, b: w.add_chain([a]), "At least two executors are required to form a chain"),
        (lambda w, a, b: w.add_multi_selection_edge_group(a, [b], pick), "must contain at least two targets"),
        (lambda w, a, b: w.add_switch_case_edge_group(a, [Default(b)]), "must contain at least two cases"),
        (
            lambda w, a, b: w.add_switch_case_edge_group(a, [Case(bool, b), Case(bool, a)]),
            "must contain exactly one default case",
        ),
        (
            lambda w, a, b: w.add_switch_case_edge_group(a, [Default(b), Default(a)]),
            "must contain exactly one default case",
        ),
        (lambda w, a, b: w.set_max_iterations(0), "max_iterations must be a positive integer, got 0"),
        (lambda w, a, b: w.set_max_iterations(True), "max_iterations must be a positive integer, got True"),
    ],
)
def test_invalid_call_raises_value_error_with_the_reason(add: Any, message: str) -> None:
    a, b = relay("a"), sink("b")
    with pytest.raises(ValueError, match=message):
        add(WorkflowBuilder(start_executor=a), a, b)


def test_a_default_that_is_not_last_warns_and_is_tried_last() -> None:
    a, b, c = relay("a"), sink("b"), sink("c")
    with pytest.warns(UserWarning, match="Default of a switch is not its last case"):
        builder = WorkflowBuilder(start_executor=a).add_switch_case_edge_group(a, [Default(c), Case(bool, b)])
    (group,) = builder.build().graph.edge_groups
    assert group.target_executor_ids == ["b", "c"]


def test_two_executors_with_one_id_are_rejected() -> None:
    with pytest.raises(
        DuplicateExecutorId,
        match=r"Duplicate executor ID 'same' detected in workflow. Agent IDs or names must be unique",
    ) as raised:
        WorkflowBuilder(start_executor=relay("same")).add_edge(relay("same"), sink("end"))
    assert ValueError in type(raised.value).__mro__ and raised.value.executor_id == "same"


def test_executor_can_be_in_many_edges() -> None:
    a, b = relay("a"), relay("b")
    workflow = WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(b, a).add_edge(a, a).build()
    assert list(workflow.executors) == ["a", "b"]


def test_a_workflow_without_a_start_is_rejected() -> None:
    a, b = relay("a"), sink("b")
    with pytest.raises(GraphConnectivityError, match=r"no start executor. Pass WorkflowBuilder\(start_executor="):
        WorkflowBuilder().add_edge(a, b).build()


def test_workflow_without_a_name_gets_a_fixed_name_from_its_start() -> None:
    names = {WorkflowBuilder(start_executor=relay("a")).build().name for _ in range(2)}
    assert names == {"FunctionExecutor-a"}


@pytest.mark.parametrize(
    "random_id", ["1b4e28ba-2fa1-41d2-883f-0016d3cca427", "worker-1B4E28BA2FA141D2883F0016D3CCA427"]
)
def test_id_that_looks_random_warns_that_checkpoints_need_a_fixed_id(random_id: str) -> None:
    with pytest.warns(UserWarning, match=f"{random_id}' looks random.*give a fixed one") as caught:
        WorkflowBuilder(start_executor=relay(random_id)).build()
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("fixed_id", ["reviewer", "step-2", "deadbeef", "order-20260101-1234"])
def test_an_ordinary_id_does_not_warn(fixed_id: str) -> None:
    assert WorkflowBuilder(start_executor=relay(fixed_id)).build().start_executor_id == fixed_id


def test_object_that_is_not_an_executor_raises_type_error() -> None:
    for wrong in (5, None.__class__, async_function):
        with pytest.raises(TypeError, match=r"expected an Executor or SupportsAgentRun|factory"):
            WorkflowBuilder(start_executor=wrong).build()


async def async_function() -> None: ...


def test_object_that_is_not_a_storage_is_rejected_with_missing_methods() -> None:
    class Half:
        async def save(self, checkpoint: object) -> str:
            return ""

    with pytest.raises(InvalidRun, match="is not a checkpoint storage: it has no load, list_checkpoints, delete"):
        WorkflowBuilder(start_executor=relay("a"), checkpoint_storage=Half())


def test_workflow_shows_its_executors_outputs_and_types() -> None:
    a, b, c = relay("a", accepts=str), relay("b"), sink("c")
    builder = WorkflowBuilder(name="w", start_executor=a, output_from=[c], intermediate_output_from=[b])
    workflow = builder.add_chain([a, b, c]).build()
    assert workflow.get_start_executor() is a and workflow.get_executors_list() == [a, b, c]
    assert (workflow.get_output_executors(), workflow.get_intermediate_executors()) == ([c], [b])
    assert workflow.is_terminal_executor("c") and workflow.is_intermediate_executor("b")
    assert not workflow.is_terminal_executor("a") and not workflow.is_intermediate_executor("a")
    assert (workflow.input_types, workflow.output_types) == ([str], [object])
    assert repr(workflow) == "Workflow('w', 3 executors)" and '"start_executor_id": "a"' in workflow.to_json()


async def test_outputs_that_were_not_declared_are_allowed_at_run_time() -> None:
    async def undeclared(message: str, ctx: Any) -> None:
        await ctx.yield_output(len(message))

    workflow = WorkflowBuilder(start_executor=FunctionExecutor(undeclared, input=str)).build()
    assert (await workflow.run("four")).get_outputs() == [4]


def test_the_same_builder_can_build_twice() -> None:
    a, b = relay("a"), function("b", lambda message, ctx: None, accepts=object)
    builder = WorkflowBuilder(start_executor=a).add_edge(a, b)
    assert builder.build().graph_signature == builder.build().graph_signature
