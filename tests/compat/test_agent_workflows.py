"""A workflow of agents with a store, its retention and its events; and the resume that it leaves out."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.promises.processes import Place
from tests.schemas import where

from perdure import (
    AgentConfig,
    AgentWorkflow,
    AgentWorkflowEvent,
    AgentWorkflowInstance,
    FileCheckpointStorage,
    FullHistory,
    InvalidDefinition,
    LatestOnly,
    Message,
    MultiAgentCheckpointRetention,
    WorkflowAgentCompletedEvent,
    WorkflowAgentSkippedEvent,
    WorkflowAgentStartedEvent,
    WorkflowCompletedEvent,
    WorkflowDiagnosticEvent,
    WorkflowEdgeTraversedEvent,
    WorkflowEvent,
    WorkflowLayerCompletedEvent,
    WorkflowLayerStartedEvent,
    WorkflowStartedEvent,
)
from perdure.testing import ScriptedAgent

PUBLIC = {
    WorkflowStartedEvent,
    WorkflowAgentStartedEvent,
    WorkflowAgentCompletedEvent,
    WorkflowAgentSkippedEvent,
    WorkflowEdgeTraversedEvent,
    WorkflowLayerStartedEvent,
    WorkflowLayerCompletedEvent,
    WorkflowCompletedEvent,
    WorkflowDiagnosticEvent,
}
"""The event families that the document names."""
EXECUTION = "tides-1"
WithStore = Callable[[AgentWorkflow], AgentWorkflow]


def reviewed(messages: list[Message]) -> str:
    return f"Reviewed: {messages[-1].text}"


def durable_review(with_store: WithStore, review: Any = reviewed, log: Any = None) -> AgentWorkflowInstance:
    """The first block."""
    draft_agent = ScriptedAgent("drafter", ["A draft about tides."], log=log)
    review_agent = ScriptedAgent("reviewer", review, log=log)
    return (
        with_store(AgentWorkflow.create().with_name("DurableReview").with_checkpointing())
        .add_agent("draft", draft_agent, lambda node: node.with_output_key("draft"))
        .add_agent("review", review_agent, lambda node: node.with_input_key("draft"))
        .from_("draft")
        .to("review")
        .build()
    )


def down(_: Any) -> ConnectionError:
    return ConnectionError("the model cannot be reached")


STORES: dict[str, Callable[[Path], WithStore]] = {
    "json": lambda folder: lambda builder: builder.with_json_workflow_store(folder / "workflows"),
    "sqlite": lambda folder: lambda builder: builder.with_sqlite_workflow_store(folder / "workflows.db"),
    "postgres": lambda folder: (
        lambda builder: builder.with_postgres_workflow_store(where(folder).dsn, schema=where(folder).schema)
    ),
}


@pytest.fixture
async def opened() -> AsyncIterator[list[AgentWorkflowInstance]]:
    """Whose stores are closed when the test ends."""
    workflows: list[AgentWorkflowInstance] = []
    yield workflows
    for workflow in workflows:
        assert workflow.workflow_store is not None
        await workflow.workflow_store.close()


# ---------------------------------------------------------------- block 1: a store that outlives the process


@pytest.mark.parametrize("store", STORES)
async def test_a_workflow_with_a_store_is_resumed_by_its_id_in_a_new_object(
    store: str, tmp_path: Path, opened: list[AgentWorkflowInstance]
) -> None:
    calls: Counter[str] = Counter()

    def reopened(review: Any = reviewed) -> AgentWorkflowInstance:
        opened.append(durable_review(STORES[store](tmp_path), review, lambda call: calls.update([call["agent"]])))
        return opened[-1]

    failed = await reopened(down).run("Write about tides", EXECUTION)
    assert (failed.state, failed.outputs) == ("failed", {"draft.draft": "A draft about tides."})

    result = await reopened().run("Write about tides", EXECUTION)

    assert (result.success, result.final_answer) == (True, "Reviewed: A draft about tides.")
    assert calls == Counter(drafter=1, reviewer=2)
    assert await reopened(down).run("Write about tides", EXECUTION) == result
    assert calls == Counter(drafter=1, reviewer=2)


def die(_: Any) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never said"


async def killed_while_it_reviews(stage: Any, storage: Any, folder: Path) -> None:
    """In another process."""
    workflow = durable_review(STORES["json"](folder), die, folder / "calls")
    await workflow.run("Write about tides", EXECUTION)


async def test_killed_workflow_resumes_where_it_was(
    tmp_path: Path, processes: Place, opened: list[AgentWorkflowInstance]
) -> None:
    with pytest.raises(EOFError):
        await processes.start(killed_while_it_reviews, tmp_path).result()

    opened.append(durable_review(STORES["json"](tmp_path), log=tmp_path / "calls"))
    result = await opened[-1].resume(EXECUTION)

    assert result.final_answer == "Reviewed: A draft about tides."
    made = [json.loads(line)["agent"] for line in (tmp_path / "calls").read_text().splitlines()]
    assert made == ["drafter", "reviewer", "reviewer"]


def with_approval(folder: Path) -> AgentWorkflowInstance:
    publisher = ScriptedAgent("publisher", ["Published."])
    return (
        AgentWorkflow.create()
        .with_name("DurableReview")
        .with_checkpointing()
        .with_json_workflow_store(folder / "workflows")
        .add_agent("draft", ScriptedAgent("drafter", ["A draft."]), lambda node: node.requires_approval("Publish?"))
        .add_agent("publish", publisher)
        .from_("draft")
        .to("publish")
        .build()
    )


async def killed_once_it_has_asked(stage: Any, storage: Any, folder: Path) -> None:
    """In another process."""
    assert (await with_approval(folder).run("Write about tides", EXECUTION)).state == "waiting"
    die(None)


async def test_request_of_a_killed_process_is_approved_in_another(
    tmp_path: Path, processes: Place, opened: list[AgentWorkflowInstance]
) -> None:
    with pytest.raises(EOFError):
        await processes.start(killed_once_it_has_asked, tmp_path).result()

    opened.append(with_approval(tmp_path))
    [asked] = await opened[-1].pending()
    result = await opened[-1].approve(asked.request_id, data={"by": "Ann"})

    assert (asked.execution_id, asked.outputs) == (EXECUTION, {"answer": "A draft."})
    assert (result.final_answer, result.outputs["draft.by"]) == ("Published.", "Ann")


async def test_the_agents_of_the_document_are_made_from_configs(
    tmp_path: Path, opened: list[AgentWorkflowInstance]
) -> None:
    draft_config = AgentConfig(model="test", instructions="Draft a text.")
    review_config = AgentConfig(model="test", instructions="Review the text.")
    workflow = (
        AgentWorkflow.create()
        .with_name("DurableReview")
        .with_checkpointing()
        .with_json_workflow_store(tmp_path / "App_Data/workflows")
        .add_agent("draft", draft_config, lambda node: node.with_output_key("draft"))
        .add_agent("review", review_config, lambda node: node.with_input_key("draft"))
        .from_("draft")
        .to("review")
        .build()
    )
    opened.append(workflow)

    result = await workflow.run("Write about tides", EXECUTION)

    assert result.success
    assert set(result.outputs) == {"draft.draft", "review.answer"}
    assert (await workflow.save()).name == "DurableReview"


# ---------------------------------------------------------------- block 2: in memory


async def test_a_store_in_memory_serves_tests_and_short_lived_runs() -> None:
    is_down = True

    def review(messages: list[Message]) -> Any:
        return down(messages) if is_down else reviewed(messages)

    workflow = durable_review(lambda builder: builder.with_in_memory_workflow_store(), review)
    assert (await workflow.run("Write about tides", EXECUTION)).state == "failed"
    is_down = False
    result = await workflow.resume(EXECUTION)

    assert result.final_answer == "Reviewed: A draft about tides."
    assert await workflow.run("Write about tides", EXECUTION) == result
    assert workflow.workflow_store is not None
    assert len(await workflow.workflow_store.list_checkpoint_ids(workflow_name="DurableReview")) == 1


# ---------------------------------------------------------------- blocks 3 to 5: what is kept


def retained(folder: Path) -> dict[str, WithStore]:
    return {
        "by keyword": lambda builder: builder.with_json_workflow_store(
            root_directory=folder, retention_mode=MultiAgentCheckpointRetention.LatestOnly
        ),
        "LatestOnly": lambda builder: builder.with_json_workflow_store(
            folder, MultiAgentCheckpointRetention.LatestOnly
        ),
        "FullHistory": lambda builder: builder.with_json_workflow_store(
            folder, MultiAgentCheckpointRetention.FullHistory
        ),
        "by default": lambda builder: builder.with_json_workflow_store(folder),
        "a class": lambda builder: builder.with_json_workflow_store(folder, retention_mode=FullHistory),
        "an instance": lambda builder: builder.with_json_workflow_store(folder, retention=LatestOnly()),
    }


@pytest.mark.parametrize(
    ("how", "keeps_all"),
    [
        ("by keyword", False),
        ("LatestOnly", False),
        ("FullHistory", True),
        ("by default", False),
        ("a class", True),
        ("an instance", False),
    ],
)
async def test_store_keeps_checkpoints_by_the_retention_mode(
    how: str, keeps_all: bool, tmp_path: Path, opened: list[AgentWorkflowInstance]
) -> None:
    opened.append(durable_review(retained(tmp_path)[how], down))
    await opened[-1].run("Write about tides", EXECUTION)
    opened.append(durable_review(retained(tmp_path)[how]))
    result = await opened[-1].resume(EXECUTION)
    assert result.final_answer == "Reviewed: A draft about tides."

    async with FileCheckpointStorage(tmp_path) as storage:
        kept = await storage.list_checkpoints(workflow_name="DurableReview")
    assert kept[-1].checkpoint_id == result.checkpoint_id
    counts = [checkpoint.iteration_count for checkpoint in kept]
    assert counts == (list(range(len(counts))) if keeps_all else counts[-1:])
    assert (len(kept) > 4) == keeps_all


@pytest.mark.parametrize(
    ("mode", "keeps_all"),
    [(MultiAgentCheckpointRetention.LatestOnly, False), (MultiAgentCheckpointRetention.FullHistory, True)],
)
async def test_the_retention_mode_means_the_same_in_memory(
    mode: MultiAgentCheckpointRetention, keeps_all: bool
) -> None:
    workflow = durable_review(lambda builder: builder.with_in_memory_workflow_store(mode))
    result = await workflow.run("Write about tides", EXECUTION)
    assert workflow.workflow_store is not None
    kept = await workflow.workflow_store.list_checkpoint_ids(workflow_name="DurableReview")
    assert kept[-1] == result.checkpoint_id
    assert (len(kept) > 4) == keeps_all


# ---------------------------------------------------------------- events


async def test_all_nine_families_of_events_are_seen_and_none_of_checkpoints() -> None:
    workflow = (
        AgentWorkflow.create()
        .with_name("DurableReview")
        .with_checkpointing()
        .with_in_memory_workflow_store()
        .add_agent(
            "draft",
            ScriptedAgent("drafter", TwoAttempts()),
            lambda node: node.with_output_key("draft").with_retry(2, initial_delay=0),
        )
        .add_agent("review", ScriptedAgent("reviewer", reviewed), lambda node: node.with_input_key("draft"))
        .add_agent("appeal", ScriptedAgent("lawyer", ["never"]))
        .from_("draft")
        .to("review")
        .when_not_empty("draft")
        .from_("draft")
        .to("appeal")
        .when_empty("draft")
        .build()
    )
    events: list[Any] = [event async for event in workflow.stream("Write about tides", EXECUTION)]

    own = {type(event) for event in events if isinstance(event, AgentWorkflowEvent)}
    assert own == PUBLIC
    assert {event.type for event in events if isinstance(event, WorkflowEvent)} == {"data"}, "what the agents say"
    assert all(isinstance(event, AgentWorkflowEvent | WorkflowEvent) for event in events)
    assert not any("checkpoint" in type(event).__name__.lower() for event in events)
    assert (type(events[0]), type(events[-1])) == (WorkflowStartedEvent, WorkflowCompletedEvent)


class TwoAttempts:
    """Fails at first."""

    def __init__(self) -> None:
        self._attempts = 0

    def __call__(self, _: list[Message]) -> Any:
        self._attempts += 1
        return ConnectionError("busy") if self._attempts == 1 else "A draft about tides."


# ---------------------------------------------------------------- what is separate


async def test_the_workflow_store_is_separate_from_the_session_store(
    tmp_path: Path, opened: list[AgentWorkflowInstance]
) -> None:
    def with_both(builder: AgentWorkflow) -> AgentWorkflow:
        builder.with_json_workflow_store(tmp_path / "workflows").with_json_session_store(tmp_path / "sessions")
        return builder.with_conversation("shared")

    opened.append(durable_review(with_both))
    result = await opened[-1].run("Write about tides", EXECUTION)

    assert result.success
    assert list((tmp_path / "workflows").iterdir()) and list((tmp_path / "sessions").iterdir())


def test_checkpointing_is_opt_in_and_needs_a_store() -> None:
    with pytest.raises(InvalidDefinition, match="workflow store"):
        durable_review(lambda builder: builder)
