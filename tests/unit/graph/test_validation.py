"""A graph that is not sound is refused by `build`, with an error of its own class that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.flows import relay, sink

from perdure import (
    Case,
    Default,
    EdgeDuplicationError,
    Executor,
    FunctionExecutor,
    GraphConnectivityError,
    TypeCompatibilityError,
    ValidationTypeEnum,
    WorkflowBuilder,
    WorkflowException,
    WorkflowValidationError,
    validate_workflow_graph,
)


def typed(name: str, accepts: Any, sends: Any = None, yields: Any = None) -> Executor:
    async def work(message: Any, ctx: Any) -> None: ...

    return FunctionExecutor(work, name, input=accepts, output=sends, workflow_output=yields)


# ---------------------------------------------------------------- edges


def twice(w: WorkflowBuilder, a: Any, b: Any, c: Any) -> WorkflowBuilder:
    return w.add_edge(a, b).add_edge(a, c).add_edge(a, b)


def twice_in_two_kinds(w: WorkflowBuilder, a: Any, b: Any, c: Any) -> WorkflowBuilder:
    return w.add_edge(a, b).add_fan_out_edges(a, [c, b])


def twice_by_condition(w: WorkflowBuilder, a: Any, b: Any, c: Any) -> WorkflowBuilder:
    return w.add_edge(a, b, bool).add_edge(a, b, callable).add_edge(a, c)


@pytest.mark.parametrize("add", [twice, twice_in_two_kinds, twice_by_condition])
def test_an_edge_that_was_added_twice_is_rejected(add: Callable[..., WorkflowBuilder]) -> None:
    a, b, c = relay("a"), sink("b"), sink("c")
    with pytest.raises(
        EdgeDuplicationError, match=r"Duplicate edge detected: a->b. Each edge in the workflow must be unique"
    ) as raised:
        add(WorkflowBuilder(start_executor=a), a, b, c).build()
    assert raised.value.edge_id == "a->b" and raised.value.validation_type is ValidationTypeEnum.EDGE_DUPLICATION


def test_two_cases_of_one_switch_may_lead_to_one_target() -> None:
    a, b, c = relay("a"), sink("b"), sink("c")
    cases: list[Case | Default] = [Case(bool, b), Case(callable, b), Default(c)]
    WorkflowBuilder(start_executor=a).add_switch_case_edge_group(a, cases).build()


# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("sends", "accepts"),
    [
        (str, str),
        (bool, int),
        (str, Any),
        (object, str),
        (str | int, int),
        (list[str], list[str]),
        (list[str], list),
        (str, str | None),
    ],
)
def test_types_that_can_meet_are_accepted(sends: Any, accepts: Any) -> None:
    a, b = typed("a", str, sends), typed("b", accepts)
    WorkflowBuilder(start_executor=a).add_edge(a, b).build()


@pytest.mark.parametrize(
    ("sends", "accepts", "sent", "accepted"),
    [
        (str, int, "str", "int"),
        (int, bool, "int", "bool"),
        (list[str], list[int], r"list\[str\]", r"list\[int\]"),
        (str | bytes, int | float, "str, bytes", r"Union\[int, float\]"),
    ],
)
def test_types_that_never_meet_are_rejected(sends: Any, accepts: Any, sent: str, accepted: str) -> None:
    a, b = typed("a", str, sends), typed("b", accepts)
    message = f"outputs types {sent} but target executor can only handle types {accepted}. Add a handler for one of"
    with pytest.raises(TypeCompatibilityError, match=message) as raised:
        WorkflowBuilder(start_executor=a).add_edge(a, b).build()
    error = raised.value
    assert (error.source_executor_id, error.target_executor_id) == ("a", "b")
    assert str(error).startswith("[TYPE_COMPATIBILITY] ")


def test_one_fitting_type_is_enough() -> None:
    a, b = typed("a", str, bytes | int), typed("b", int | str)
    WorkflowBuilder(start_executor=a).add_edge(a, b).build()


def test_an_executor_that_declares_nothing_is_not_checked() -> None:
    a, b = typed("a", str), typed("b", int)
    WorkflowBuilder(start_executor=a).add_edge(a, b).build()


def test_a_fan_in_is_compared_with_the_list_that_arrives() -> None:
    a, b, c = typed("a", str, str), typed("b", str, str), typed("c", str, str)
    spread = WorkflowBuilder(start_executor=a).add_fan_out_edges(a, [b, c])
    spread.add_fan_in_edges([b, c], typed("all", list[str])).build()
    other = WorkflowBuilder(start_executor=a).add_fan_out_edges(a, [b, c]).add_fan_in_edges([b, c], typed("one", str))
    with pytest.raises(TypeCompatibilityError, match=r"outputs types list\[str\] but target .* types str\."):
        other.build()


# ---------------------------------------------------------------- connections


def test_executors_that_cannot_be_reached_are_rejected_by_name() -> None:
    a, b, c, d = relay("a"), sink("b"), relay("c"), sink("d")
    with pytest.raises(
        GraphConnectivityError, match=r"unreachable from the start executor 'a': \['c', 'd'\]. Add an edge"
    ):
        WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(c, d).build()


def test_an_executor_that_only_leads_to_the_start_cannot_be_reached() -> None:
    a, b = relay("a"), relay("b")
    with pytest.raises(GraphConnectivityError, match=r"'a': \['b'\]"):
        WorkflowBuilder(start_executor=a).add_edge(b, a).build()


def test_a_registered_executor_without_an_edge_is_rejected() -> None:
    with pytest.raises(GraphConnectivityError, match=r"'a': \['lonely'\]"):
        WorkflowBuilder(start_executor=relay("a")).register_executor(lambda: relay("lonely"), "lonely").build()


def test_a_start_alone_loops_and_dead_ends_are_sound() -> None:
    a, b = relay("a"), relay("b")
    WorkflowBuilder(start_executor=a).build()
    WorkflowBuilder(start_executor=a).add_edge(a, a).add_edge(a, b).build()


def test_a_start_that_is_not_in_the_graph_is_rejected() -> None:
    with pytest.raises(GraphConnectivityError, match="Start executor 'a' is not present in the workflow graph"):
        validate_workflow_graph([], {"b": relay("b")}, relay("a"))


# ---------------------------------------------------------------- outputs


def with_outputs(output: Any = None, intermediate: Any = None, **more: Any) -> WorkflowBuilder:
    """`silent` sends on, `draft` and `final` yield."""
    silent, draft, final = typed("silent", str, str), typed("draft", str, str, str), typed("final", str, None, str)
    chosen = {"silent": silent, "draft": draft, "final": final}

    def resolved(names: Any) -> Any:
        return [chosen.get(name, name) for name in names] if isinstance(names, list) else names

    builder = WorkflowBuilder(
        start_executor=silent, output_from=resolved(output), intermediate_output_from=resolved(intermediate), **more
    )
    return builder.add_chain([silent, draft, final])


@pytest.mark.parametrize(
    ("output", "intermediate", "outputs", "intermediates"),
    [
        (None, None, ["silent", "draft", "final"], []),
        (["final"], None, ["final"], []),
        ("all", None, ["draft", "final"], []),
        (["final"], ["draft"], ["final"], ["draft"]),
        (["final"], "all_other", ["final"], ["draft"]),
        (None, "all", [], ["draft", "final"]),
        (None, ["draft"], [], ["draft"]),
        ("all", "all_other", ["draft", "final"], []),
    ],
)
def test_outputs_are_designated(output: Any, intermediate: Any, outputs: list[str], intermediates: list[str]) -> None:
    workflow = with_outputs(output, intermediate).build()
    assert [executor.id for executor in workflow.get_output_executors()] == outputs
    assert [executor.id for executor in workflow.get_intermediate_executors()] == intermediates


@pytest.mark.parametrize(
    ("output", "intermediate", "message"),
    [
        ([], None, "name none, so the workflow would have no output"),
        ([], [], "name none"),
        (["final", "final"], None, "Duplicate output executor designation.* in output_from"),
        (["final"], ["draft", "draft"], "Duplicate intermediate executor designation.* in intermediate_output_from"),
        (["final"], ["final"], "cannot be both output and intermediate designated: .'final'"),
        ("all", "all", "cannot be both output and intermediate"),
        (
            ["finall"],
            None,
            r"Output executor 'finall' is not present in the workflow graph, .*did you mean 'final'",
        ),
        (
            ["silent"],
            None,
            r"Output executor 'silent' must have output type annotations.*WorkflowContext\[",
        ),
    ],
)
def test_invalid_output_designation_is_rejected(output: Any, intermediate: Any, message: str) -> None:
    with pytest.raises(WorkflowValidationError, match=message) as raised:
        with_outputs(output, intermediate).build()
    assert raised.value.validation_type is ValidationTypeEnum.OUTPUT_VALIDATION
    assert str(raised.value).startswith("[OUTPUT_VALIDATION] ") and isinstance(raised.value, WorkflowException)


@pytest.mark.parametrize(
    ("output", "intermediate", "parameter"),
    [("all_other", None, "output_from"), ("every", None, "output_from"), (None, "every", "intermediate_output_from")],
)
def test_an_unknown_literal_for_outputs_is_rejected(output: Any, intermediate: Any, parameter: str) -> None:
    with pytest.raises(ValueError, match=f"Unsupported {parameter} literal '{output or intermediate}'; use 'all'"):
        with_outputs(output, intermediate)


def test_an_executor_that_is_not_in_the_graph_cannot_be_designated() -> None:
    with pytest.raises(
        WorkflowValidationError, match="'stranger' is not present in the workflow graph, but output_from"
    ):
        with_outputs([sink("stranger")]).build()


def test_output_executors_designates_outputs_but_not_with_output_from() -> None:
    final = sink("final")
    with pytest.warns(DeprecationWarning, match="`output_executors` is deprecated"):
        workflow = WorkflowBuilder(start_executor=final, output_executors=[final]).build()
    assert workflow.get_output_executors() == [final]
    with pytest.raises(TypeError, match="Cannot pass multiple workflow output selection parameters"):
        WorkflowBuilder(start_executor=final, output_executors=[final], output_from=[final])


def test_a_designation_may_use_registered_names() -> None:
    builder = WorkflowBuilder(output_from=["end"]).register_executor(lambda: sink("last"), "end")
    workflow = builder.set_start_executor("end").build()
    assert [executor.id for executor in workflow.get_output_executors()] == ["last"]


def test_errors_are_found_in_a_fixed_order_duplicates_first() -> None:
    a, b = typed("a", str, str), typed("b", int)
    builder = WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(a, b).add_edge(typed("x", str), b)
    with pytest.raises(EdgeDuplicationError):
        builder.build()
