"""The reference's names, fields and parameters, section by section: what a reader of its pages may look for is here.

What belongs to parts that are not built yet is listed as such, and taken off the list when it arrives.
"""

from __future__ import annotations

import importlib
import inspect
import json
from itertools import pairwise
from typing import Any, Unpack, get_args, get_origin, get_overloads, get_type_hints

import pytest
from tests.compat.programs import berth_workflow, collect, last_status, tide_workflow

import perdure
from perdure import (
    DEFAULT_MAX_ITERATIONS,
    Executor,
    InMemoryCheckpointStorage,
    ValidationTypeEnum,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowEventType,
    WorkflowRunState,
    handler,
)

NAMES = {
    "graph": "Workflow WorkflowBuilder WorkflowRunResult Edge EdgeCondition SingleEdgeGroup FanOutEdgeGroup "
    "FanInEdgeGroup SwitchCaseEdgeGroup SwitchCaseEdgeGroupCase SwitchCaseEdgeGroupDefault Case Default",
    "executors": "Executor handler FunctionExecutor executor response_handler WorkflowContext",
    "events": "WorkflowEvent WorkflowEventType WorkflowEventSource WorkflowErrorDetails WorkflowRunState",
    "checkpoints": "CheckpointID CheckpointStorage InMemoryCheckpointStorage FileCheckpointStorage WorkflowCheckpoint",
    "running": "WorkflowMessage DEFAULT_MAX_ITERATIONS ResponseStream",
    "validation": "ValidationTypeEnum WorkflowValidationError EdgeDuplicationError TypeCompatibilityError "
    "GraphConnectivityError validate_workflow_graph",
    "sub-workflows": "WorkflowExecutor SubWorkflowRequestMessage SubWorkflowResponseMessage",
    "functions": "workflow step RunContext get_run_context StepWrapper FunctionalWorkflow "
    "FunctionalWorkflowDefinition FunctionalWorkflowAgent",
    "agents": "AgentExecutor AgentExecutorRequest AgentExecutorResponse WorkflowAgent resolve_agent_id",
    "drawing": "WorkflowViz",
    "exceptions": "WorkflowException WorkflowRunnerException WorkflowConvergenceException WorkflowCheckpointException",
}
LATER = {
    "evaluation": "evaluate_workflow",
}


@pytest.mark.parametrize("area", NAMES)
def test_the_names_of_the_reference_are_public(area: str) -> None:
    assert [name for name in NAMES[area].split() if name not in perdure.__all__] == []


@pytest.mark.parametrize("area", LATER)
def test_a_name_that_has_arrived_is_not_listed_as_missing(area: str) -> None:
    arrived = [name for name in LATER[area].split() if name in perdure.__all__]
    assert arrived == [], f"move {arrived} from LATER to NAMES"


MEMBERS = {
    "WorkflowBuilder": "add_edge add_fan_out_edges add_fan_in_edges add_switch_case_edge_group "
    "add_multi_selection_edge_group add_chain build set_start_executor with_checkpointing set_max_iterations "
    "register_executor register_agent",
    "Workflow": "edge_groups executors start_executor_id max_iterations name description id graph_signature "
    "graph_signature_hash status input_types output_types run to_dict to_json get_start_executor get_output_executors "
    "get_intermediate_executors get_executors_list is_terminal_executor is_intermediate_executor run_streaming "
    "run_stream run_stream_from_checkpoint run_from_checkpoint as_agent cancel_pending_requests",
    "WorkflowRunResult": "get_outputs get_intermediate_outputs get_request_info_events get_final_state status_timeline",
    "ResponseStream": "get_final_response __aiter__ __await__",
    "Edge": "id source_id target_id condition condition_name has_condition should_route to_dict",
    "SingleEdgeGroup": "id type edges source_executor_ids target_executor_ids to_dict",
    "Case": "condition target",
    "Default": "target",
    "Executor": "id type can_handle input_types output_types workflow_output_types is_request_response_capable "
    "is_request_supported to_dict on_checkpoint_save on_checkpoint_restore",
    "WorkflowContext": "send_message yield_output add_event request_info get_state set_state state request_id "
    "source_executor_ids get_source_executor_id get_sent_messages get_yielded_outputs is_streaming get_runtime_tools",
    "WorkflowEvent": "type data origin state details executor_id request_id source_executor_id request_type "
    "response_type iteration emit to_dict from_dict started status failed output intermediate warning error "
    "request_info superstep_started superstep_completed executor_invoked executor_completed executor_failed "
    "executor_bypassed",
    "WorkflowErrorDetails": "error_type message traceback executor_id extra from_exception",
    "WorkflowCheckpoint": "workflow_name graph_signature_hash checkpoint_id previous_checkpoint_id timestamp messages "
    "state pending_request_info_events iteration_count metadata version to_dict from_dict",
    "CheckpointStorage": "save load list_checkpoints delete get_latest list_checkpoint_ids",
    "FileCheckpointStorage": "save load list_checkpoints delete get_latest list_checkpoint_ids",
    "WorkflowMessage": "data source_id target_id type original_request_info_event",
    "WorkflowExecutor": "id workflow allow_direct_output propagate_request input_types output_types can_handle",
    "SubWorkflowRequestMessage": "source_event executor_id create_response",
    "SubWorkflowResponseMessage": "data source_event",
    "FunctionalWorkflow": "name description run as_agent",
    "StepWrapper": "name __call__",
    "RunContext": "request_info add_event get_state set_state is_streaming",
    "WorkflowViz": "to_mermaid to_digraph export save_svg save_png save_pdf",
}


async def _flood(mark: int) -> int:
    return mark


def instances() -> dict[str, Any]:
    """An object of each class whose attributes are made by its constructor or are fields with a default."""
    workflow = tide_workflow()
    asked = WorkflowEvent.request_info("r", "tide", "when?", str)
    return {
        "Workflow": workflow,
        "WorkflowExecutor": perdure.WorkflowExecutor(workflow, "child"),
        "SubWorkflowRequestMessage": perdure.SubWorkflowRequestMessage(asked, "child"),
        "SubWorkflowResponseMessage": perdure.SubWorkflowResponseMessage("now", asked),
        "FunctionalWorkflow": perdure.workflow(_flood),
        "StepWrapper": perdure.step(_flood),
        "Executor": workflow.get_start_executor(),
        "Edge": workflow.edge_groups[0].edges[0],
        "SingleEdgeGroup": workflow.edge_groups[0],
        "Case": perdure.Case(lambda _: True, "a"),
        "Default": perdure.Default("a"),
    }


@pytest.mark.parametrize("owner", MEMBERS)
def test_the_members_of_the_reference_are_there(owner: str) -> None:
    looked_at = instances().get(owner, getattr(perdure, owner))
    assert [name for name in MEMBERS[owner].split() if not hasattr(looked_at, name)] == []


PARAMETERS = {
    "WorkflowBuilder": "max_iterations name description start_executor checkpoint_storage output_from "
    "intermediate_output_from output_executors",
    "WorkflowBuilder.add_edge": "source target condition",
    "WorkflowBuilder.add_fan_out_edges": "source targets",
    "WorkflowBuilder.add_fan_in_edges": "sources target",
    "WorkflowBuilder.add_switch_case_edge_group": "source cases",
    "WorkflowBuilder.add_multi_selection_edge_group": "source targets selection_func",
    "WorkflowBuilder.add_chain": "executors",
    "WorkflowBuilder.with_checkpointing": "checkpoint_storage",
    "Workflow.run_stream_from_checkpoint": "checkpoint_id checkpoint_storage",
    "FileCheckpointStorage": "storage_path allowed_checkpoint_types",
    "Executor": "id type type_ defer_discovery",
    "FunctionExecutor": "func id input output workflow_output",
    "handler": "input output workflow_output",
    "executor": "id input output workflow_output",
    "response_handler": "request response output workflow_output",
    "Edge": "source_id target_id condition condition_name",
    "WorkflowContext.send_message": "message target_id",
    "WorkflowContext.yield_output": "output",
    "WorkflowContext.request_info": "request_data response_type request_id",
    "WorkflowContext.get_state": "key default",
    "WorkflowContext.set_state": "key value",
    "WorkflowEvent": "type data origin state details executor_id request_id source_executor_id request_type "
    "response_type iteration",
    "WorkflowErrorDetails": "error_type message traceback executor_id extra",
    "WorkflowMessage": "data source_id target_id type original_request_info_event",
    "WorkflowExecutor": "workflow id allow_direct_output propagate_request",
    "SubWorkflowRequestMessage": "source_event executor_id",
    "SubWorkflowRequestMessage.create_response": "data",
    "SubWorkflowResponseMessage": "data source_event",
    "workflow": "func name description checkpoint_storage",
    "step": "func name replay_key",
    "RunContext.request_info": "request_data response_type request_id",
    "RunContext.add_event": "event",
    "RunContext.get_state": "key default",
    "RunContext.set_state": "key value",
    "WorkflowViz": "workflow",
    "WorkflowViz.to_mermaid": "include_internal_executors",
    "WorkflowViz.to_digraph": "include_internal_executors",
    "WorkflowViz.export": "format filename include_internal_executors",
    "WorkflowViz.save_svg": "filename include_internal_executors",
    "WorkflowViz.save_png": "filename include_internal_executors",
    "WorkflowViz.save_pdf": "filename include_internal_executors",
}


@pytest.mark.parametrize("path", PARAMETERS)
def test_a_call_takes_the_parameters_of_the_reference_in_its_order(path: str) -> None:
    called: Any = perdure
    for name in path.split("."):
        called = getattr(called, name)
    signature = inspect.signature(called.__init__ if path == "Executor" else called).parameters
    expected = PARAMETERS[path].split()

    assert [name for name in expected if name not in signature] == []
    positional = [
        name
        for name, parameter in signature.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name != "self"
    ]
    shared = [name for name in positional if name in expected][:2]
    assert shared == expected[: len(shared)]


@pytest.mark.parametrize("kind", [Workflow, perdure.FunctionalWorkflow])
def test_run_shows_every_reference_parameter_to_type_checkers(kind: Any) -> None:
    expected = (
        "message stream responses checkpoint_id checkpoint_storage include_status_events function_invocation_kwargs "
        "client_kwargs"
    )
    overloads = get_overloads(kind.run)
    assert len(overloads) == 2
    for overloaded in overloads:
        hints = get_type_hints(overloaded)
        assert get_origin(hints["options"]) is Unpack
        shown = {*inspect.signature(overloaded).parameters, *get_type_hints(get_args(hints["options"])[0])}
        assert [name for name in expected.split() if name not in shown] == []
    assert [name for name in expected.split() if name not in inspect.signature(kind.run).parameters] == []


async def test_a_misspelt_option_of_run_is_an_error_of_run() -> None:
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'checkpointid'"):
        await tide_workflow().run(checkpointid="any")  # type: ignore[call-overload]  # misspelt: what is being shown


def test_a_builder_gives_itself_back_so_that_calls_can_be_chained() -> None:
    builder = WorkflowBuilder(10, "ferry", "across and back")
    first, second, third = (type(tide_workflow().get_start_executor())(name) for name in ("a", "b", "c"))

    assert builder.set_start_executor(first) is builder
    assert builder.add_edge(first, second) is builder
    assert builder.add_chain([second, third, first]) is builder
    assert builder.with_checkpointing(InMemoryCheckpointStorage()) is builder
    built = builder.build()
    assert (built.max_iterations, built.name, built.description) == (10, "ferry", "across and back")
    assert DEFAULT_MAX_ITERATIONS == tide_workflow().max_iterations == 100


# ---------------------------------------------------------------- enumerations, events, exceptions


def test_states_and_kinds_are_those_of_the_reference() -> None:
    assert {state.name for state in WorkflowRunState} == {
        *("STARTED", "IN_PROGRESS", "IN_PROGRESS_PENDING_REQUESTS", "IDLE", "IDLE_WITH_PENDING_REQUESTS"),
        *("FAILED", "CANCELLED"),
    }
    assert {source.name for source in WorkflowEventSource} == {"FRAMEWORK", "EXECUTOR"}
    assert {kind.name for kind in ValidationTypeEnum} == {
        *("EDGE_DUPLICATION", "EXECUTOR_DUPLICATION", "TYPE_COMPATIBILITY", "GRAPH_CONNECTIVITY"),
        *("HANDLER_OUTPUT_ANNOTATION", "OUTPUT_VALIDATION"),
    }
    events = (
        "started status failed output intermediate data request_info warning error superstep_started "
        "superstep_completed executor_invoked executor_completed executor_failed executor_bypassed group_chat "
        "handoff_sent magentic_orchestrator"
    )
    assert set(events.split()) <= set(get_args(WorkflowEventType))


@pytest.mark.parametrize(
    "tree",
    [
        "WorkflowException > WorkflowRunnerException > WorkflowConvergenceException",
        "WorkflowException > WorkflowRunnerException > WorkflowCheckpointException",
        "WorkflowException > WorkflowValidationError > EdgeDuplicationError",
        "WorkflowException > WorkflowValidationError > TypeCompatibilityError",
        "WorkflowException > WorkflowValidationError > GraphConnectivityError",
    ],
)
def test_exception_is_caught_by_the_same_classes_as_in_the_reference(tree: str) -> None:
    kinds = [getattr(perdure, name) for name in tree.split(" > ")]
    assert all(issubclass(narrow, wide) for wide, narrow in pairwise(kinds))


def test_the_exceptions_are_found_where_the_reference_keeps_them() -> None:
    module = importlib.import_module("perdure.exceptions")
    for name in NAMES["exceptions"].split():
        assert getattr(module, name) is getattr(perdure, name)


def test_a_validation_error_begins_with_its_kind() -> None:
    error = perdure.WorkflowValidationError("no way in", ValidationTypeEnum.GRAPH_CONNECTIVITY)
    assert str(error) == "[GRAPH_CONNECTIVITY] no way in"


def test_a_checkpoint_needs_two_fields_and_has_defaults_for_the_rest() -> None:
    first, other = (WorkflowCheckpoint(workflow_name="ferry", graph_signature_hash="none") for _ in range(2))

    assert first.checkpoint_id != other.checkpoint_id
    assert first.timestamp.endswith("+00:00")
    assert (first.previous_checkpoint_id, first.iteration_count, first.version) == (None, 0, "1.0")
    assert (first.messages, first.state, first.pending_request_info_events, first.metadata) == ({}, {}, {}, {})


# ---------------------------------------------------------------- at work


class Inspector(Executor):
    """Calls every method of a context, and yields the results."""

    @handler
    async def inspect(self, message: str, ctx: WorkflowContext[str, dict[str, Any]]) -> None:
        ctx.set_state("seen", ctx.get_state("seen", 0) + 1)
        if ctx.get_source_executor_id() != "inspector":
            await ctx.send_message(message.upper(), target_id="inspector")
        await ctx.add_event(WorkflowEvent("inspected", message))
        await ctx.yield_output(
            {
                "from": ctx.source_executor_ids,
                "sent": ctx.get_sent_messages(),
                "streaming": ctx.is_streaming(),
                "state": dict(ctx.state),
                "request": ctx.request_id,
                "yielded": ctx.get_yielded_outputs(),
            }
        )


async def test_context_in_a_handler_acts_as_in_the_reference() -> None:
    inspector = Inspector("inspector")
    workflow = WorkflowBuilder(start_executor=inspector).add_edge(inspector, inspector).build()

    events = await collect(workflow.run("hull", stream=True))

    own = [event for event in events if event.origin is WorkflowEventSource.EXECUTOR]
    assert [(event.type, event.data, event.executor_id) for event in own] == [
        ("inspected", "hull", "inspector"),
        ("inspected", "HULL", "inspector"),
    ]
    first, second = (event.data for event in events if event.type == "output")
    assert (first["sent"], first["streaming"], first["state"], first["yielded"]) == (["HULL"], True, {"seen": 1}, [])
    assert first["from"] == ["internal:inspector"]
    assert (second["from"], second["sent"], second["state"]) == (["inspector"], [], {"seen": 2})
    assert first["request"] is None


async def test_the_events_of_a_run_come_in_the_order_of_the_reference() -> None:
    events = await collect(tide_workflow(mark=1).run(stream=True))

    types = [event.type for event in events]
    assert types == [
        *("started", "status", "superstep_started", "executor_invoked", "output", "executor_completed"),
        *("superstep_completed", "status"),
    ]
    assert last_status(events) == WorkflowRunState.IDLE


async def test_a_stream_gives_events_and_then_the_result() -> None:
    stream = tide_workflow(mark=2).run(stream=True)
    seen = [event.type async for event in stream]
    final = await stream.get_final_response()

    assert seen.count("superstep_completed") == 2
    assert final.get_outputs() == [2]
    assert await stream is stream and final is await stream.get_final_response()


async def test_a_result_lists_its_events_without_started_and_status_unless_asked() -> None:
    plain = await tide_workflow(mark=2).run()
    assert not {"started", "status"} & {event.type for event in plain}
    assert plain.status_timeline() and plain.get_final_state() == WorkflowRunState.IDLE

    asked = await tide_workflow(mark=2).run(include_status_events=True)
    assert [event.state for event in asked if event.type == "status"] == [
        WorkflowRunState.IN_PROGRESS,
        WorkflowRunState.IDLE,
    ]
    assert "started" not in {event.type for event in asked}


async def test_a_request_travels_as_json_text() -> None:
    asked: Any
    [asked] = (await berth_workflow().run("Ariel")).get_request_info_events()

    rebuilt = type(asked).from_dict(json.loads(json.dumps(asked.to_dict())))

    assert (rebuilt.type, rebuilt.request_id, rebuilt.source_executor_id) == ("request_info", "berth-Ariel", "master")
    assert rebuilt.data == asked.data
    assert (rebuilt.request_type, rebuilt.response_type) == (asked.request_type, asked.response_type)


async def test_the_events_carry_the_fields_of_the_reference() -> None:
    events = await collect(tide_workflow(mark=2).run(stream=True))
    by_type = {event.type: event for event in reversed(events)}

    assert by_type["executor_invoked"].executor_id == "tide"
    assert by_type["executor_completed"].data == [None]
    assert by_type["output"].data == 2 and by_type["output"].executor_id == "tide"
    assert by_type["superstep_started"].iteration == by_type["superstep_completed"].iteration == 1
    assert by_type["status"].state == WorkflowRunState.IN_PROGRESS
