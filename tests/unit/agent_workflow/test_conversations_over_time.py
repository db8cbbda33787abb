"""Conversations after crashes, rewinds and forks: no message is recorded twice or reaches the wrong agent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.chance import SOAK

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.execution.node import CONDUCTOR
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agent_workflow.sessions import InMemorySessionStore, JsonSessionStore, SessionStore
from perdure.agent_workflow.state import NodeOutcome, SessionRef
from perdure.agents.conversation.message import Message
from perdure.checkpoints.encode import encode_checkpoint, tool_codec
from perdure.checkpoints.history.retention import FullHistory
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing import Call, FakeClock, Faults, ProcessGone, ScriptedAgent, assert_survives_crash
from perdure.testing.crash import THREAD
from perdure.workflows.workflow import Workflow

SESSION = f"workflow-W-{THREAD}"


def listening(name: str) -> ScriptedAgent:
    """Return an agent that replies with the number of messages that it received."""
    return ScriptedAgent(name, lambda messages: f"{name} after {len(messages)}: {messages[-1].text}"[:40])


def gauge() -> str:
    """How high the tide is."""
    return "7 metres at Brest"


def built(storage: Any, sessions: SessionStore, mode: Any, *, is_whole: bool = True) -> AgentWorkflowInstance:
    """Build two concurrent nodes, one of which calls a tool. The whole workflow adds a map, and runs twice."""
    builder = (
        AgentWorkflow.create()
        .with_name("W")
        .with_checkpointing()
        .with_workflow_store(storage)
        .with_clock(FakeClock())
        .with_session_store(sessions)
        .with_conversation(mode)
    )
    if is_whole:
        builder.add_agent("a", listening("a")).from_("a").to("b", "c")
    builder.add_agent("b", ScriptedAgent("b", [Call("gauge"), "Seven.", "Still seven."], tools=[gauge]))
    builder.add_agent("c", listening("c"))
    if is_whole:
        builder.add_agent("m", listening("m"), lambda node: node.map_over("input.items")).from_("b", "c").to("m")
        builder.from_("m").to("a").with_max_iterations(2).with_convergence(False)
    return builder.build()


async def texts_by_thread(store: SessionStore, session_id: str = SESSION) -> dict[str, list[str]]:
    return {
        thread: [f"{message.role} {message.text}" for message in await store.messages(session_id, thread)]
        for thread in await store.threads(session_id)
    }


def stored_in(folder: Path) -> str:
    [path] = folder.glob("conversation-*.jsonl")
    return path.read_text(encoding="utf-8")


@pytest.mark.timeout(600 if SOAK else 20)
@pytest.mark.parametrize("mode", ["shared", "per_agent", "fork_per_agent"] if SOAK else ["shared", "fork_per_agent"])
async def test_crash_at_any_write_does_not_change_the_conversation(mode: str) -> None:
    stores: list[InMemorySessionStore] = []

    def storage() -> InMemoryCheckpointStorage:
        stores.append(InMemorySessionStore())
        return InMemoryCheckpointStorage()

    def make(checkpoints: Any) -> Workflow:
        return built(checkpoints, stores[-1], mode, is_whole=SOAK).workflow

    survival = await assert_survives_crash(make, {"items": ["1", "2"]}, storage=storage)
    undisturbed, *crashed = [await texts_by_thread(store) for store in stores]
    assert len(crashed) == len(survival.points) and "Seven." in str(undisturbed)
    for place, threads in zip(survival.points, crashed, strict=True):
        assert threads == undisturbed, f"after a crash {place}"


async def test_messages_are_stored_once_for_all_their_references(tmp_path: Path) -> None:
    storage, sessions = InMemoryCheckpointStorage(retention=FullHistory()), JsonSessionStore(tmp_path)
    workflow = built(storage, sessions, "fork_per_agent")
    await workflow.run({"items": ["1"]}, THREAD)
    assert stored_in(tmp_path).count("7 metres at Brest") == 1
    with_it = [thread for thread, texts in (await texts_by_thread(sessions)).items() if "tool " in texts]
    assert sorted(with_it) == ["workflow", "workflow-agent-b", "workflow-agent-m"]
    for info in await workflow.workflow.history(THREAD):
        tree = encode_checkpoint(await storage.load(info), tool_codec())
        assert "7 metres at Brest" not in str(tree)


async def test_session_entries_are_stored_before_a_checkpoint_refers_to_them() -> None:
    referred: set[str] = set()
    for nth in count(1):
        faults = Faults()
        faults.crash("commit", nth=nth, when="after")
        storage, sessions = InMemoryCheckpointStorage(), InMemorySessionStore()
        try:
            await built(faults.wrap(storage), sessions, "fork_per_agent", is_whole=False).run("x", THREAD)
        except ProcessGone:
            refs = await refs_in(built(storage, sessions, "fork_per_agent", is_whole=False).workflow)
        else:
            break
        for ref in refs:
            await sessions.read(ref.session_id, ref.version)  # raises if it is not there
            referred.add(ref.version)
    assert len(referred) >= 3


async def refs_in(workflow: Workflow) -> list[SessionRef]:
    """Of the last checkpoint: of outcomes that are on their way, and of how far the conductor is."""
    head = await workflow.head(THREAD)
    assert head is not None
    outcomes = [delivery.data for delivery in head.deliveries if isinstance(delivery.data, NodeOutcome)]
    memory = head.executors.get(CONDUCTOR)
    known = {} if memory is None or not memory.private else memory.private["state"].conversations
    return [*known.values(), *(outcome.session for outcome in outcomes if outcome.session is not None)]


# ---------------------------------------------------------------- going back


class Counting:
    """Replies that are never the same, so that messages after a rewind differ from those before."""

    def __init__(self) -> None:
        self.number = 0
        self.received: dict[str, list[list[str]]] = {}

    def agent(self, name: str) -> ScriptedAgent:
        def reply(messages: list[Message]) -> str:
            self.received.setdefault(name, []).append([message.text for message in messages])
            self.number += 1
            return f"{name}{self.number}"

        return ScriptedAgent(name, reply)


def chain(counting: Counting, sessions: SessionStore, session_id: str | None = None) -> AgentWorkflowInstance:
    return (
        AgentWorkflow.create()
        .with_name("W")
        .with_checkpointing()
        .with_in_memory_workflow_store(FullHistory)
        .with_session_store(sessions)
        .with_conversation("shared", session_id=session_id)
        .add_agent("a", counting.agent("a"), lambda node: node.with_input_template("ask"))
        .add_agent("b", counting.agent("b"), lambda node: node.with_input_template("ask"))
        .add_agent("c", counting.agent("c"), lambda node: node.with_input_template("ask"))
        .from_("a")
        .to("b")
        .from_("b")
        .to("c")
        .build()
    )


async def after(workflow: AgentWorkflowInstance, node: str) -> Any:
    """The first checkpoint at which this node had spoken, and the conductor knew."""
    for info in reversed(await workflow.workflow.history("e")):
        checkpoint = await workflow.workflow.checkpoint_storage.load(info)
        tasks = [delivery.data for delivery in checkpoint.deliveries if type(delivery.data).__name__ == "NodeTask"]
        if tasks and node in tasks[0].outputs:
            return info
    raise AssertionError(f"{node} never spoke")


async def test_rewound_execution_does_not_see_later_messages() -> None:
    counting, sessions = Counting(), InMemorySessionStore()
    workflow = chain(counting, sessions)
    await workflow.run("x", "e")
    await workflow.workflow.rewind("e", await after(workflow, "a"))
    result = await workflow.resume("e")
    assert result.final_answer == "c5"
    assert counting.received["b"] == [["ask", "a1", "ask"], ["ask", "a1", "ask"]]
    assert counting.received["c"] == [["ask", "a1", "ask", "b2", "ask"], ["ask", "a1", "ask", "b4", "ask"]]
    assert (await texts_by_thread(sessions, "workflow-W-e"))["workflow"][-3:] == [
        "assistant b4",
        "user ask",
        "assistant c5",
    ]


async def test_fork_and_its_origin_are_isolated_and_lose_no_messages() -> None:
    counting, sessions = Counting(), InMemorySessionStore()
    workflow = chain(counting, sessions)
    await workflow.run("x", "e")
    origin = await sessions.messages("workflow-W-e", "workflow", execution_id="e")
    await workflow.workflow.run(checkpoint_id=await after(workflow, "a"), fork=True, thread_id="f")
    assert counting.received["c"][-1] == ["ask", "a1", "ask", "b4", "ask"]
    assert await sessions.messages("workflow-W-e", "workflow", execution_id="e") == origin
    forked = await sessions.messages("workflow-W-e", "workflow", execution_id="f")
    assert [message.text for message in forked] == ["ask", "a1", "ask", "b4", "ask", "c5"]
    assert await sessions.sessions() == ["workflow-W-e"]


async def test_next_execution_of_a_session_does_not_see_rewound_messages() -> None:
    counting, sessions = Counting(), InMemorySessionStore()
    workflow = chain(counting, sessions, session_id="chat")
    await workflow.run("x", "e")
    await workflow.workflow.rewind("e", await after(workflow, "a"))
    await workflow.resume("e")
    await workflow.run("x", "next")
    assert counting.received["a"][-1] == ["ask", "a1", "ask", "b4", "ask", "c5", "ask"]


async def test_rewound_messages_disappear_from_threads_without_new_messages() -> None:
    replies: Iterator[str | BaseException] = iter(["b1", ValueError("busy"), "b2"])
    received: list[list[str]] = []

    def reply(messages: list[Message]) -> str | BaseException:
        received.append([message.text for message in messages])
        return next(replies)

    workflow = (
        AgentWorkflow.create()
        .with_name("W")
        .with_checkpointing()
        .with_in_memory_workflow_store(FullHistory)
        .with_in_memory_session_store()
        .with_conversation("per_agent", session_id="chat")
        .add_agent("a", Counting().agent("a"))
        .add_agent("b", ScriptedAgent("b", reply))
        .from_("a")
        .to("b")
        .build()
    )
    await workflow.run("x", "e")
    at_the_start = (await workflow.workflow.history("e"))[-2]
    await workflow.workflow.rewind("e", at_the_start)
    stopped = await workflow.resume("e")
    assert stopped.state == "failed"
    await workflow.run("x", "next")
    assert received == [["x"], ["x"], ["x"]]
