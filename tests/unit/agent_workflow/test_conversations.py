"""What agents of a workflow know of each other's turns, by conversation policy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.definition import ConversationConfig
from perdure.agent_workflow.sessions import InMemorySessionStore
from perdure.agents.conversation.message import AgentSession, Message
from perdure.errors import ConversationNotFound
from perdure.testing import Call, FakeClock, ScriptedAgent

NODES = ("a", "b", "c", "d")


class Team:
    """a, then b and c at the same time, then d; each replies with its name and the number of its turn."""

    def __init__(self, mode: Any, store: InMemorySessionStore | None = None) -> None:
        self.store = store or InMemorySessionStore()
        self.agents = {node: RecordingAgent(*(f"{node}{n}" for n in range(1, 9)), name=node) for node in NODES}
        self.builder = kept("W").with_session_store(self.store).with_conversation(mode)

    def added(self, *nodes: str) -> AgentWorkflow:
        for node in nodes:
            self.builder.add_agent(node, self.agents[node], lambda options: options.with_input_template("ask"))
        return self.builder

    def diamond(self) -> AgentWorkflow:
        return self.added(*NODES).from_("a").to("b", "c").from_("b", "c").to("d")

    def received(self, node: str, turn: int = -1) -> list[str]:
        return [message.text for message in self.agents[node].received[turn]]

    async def texts(self, thread_id: str, session_id: str = "workflow-W-e", **which: Any) -> list[str]:
        return [message.text for message in await self.store.messages(session_id, thread_id, **which)]


# ---------------------------------------------------------------- policies


async def test_agent_without_a_conversation_receives_only_its_input() -> None:
    team = Team("none")
    await team.diamond().build().run("x", "e")
    assert [team.received(node) for node in NODES] == [["ask"]] * 4
    assert await team.store.sessions() == []


async def test_shared_conversation_contains_all_earlier_turns() -> None:
    team = Team("shared")
    await team.diamond().build().run("x", "e")
    assert team.received("a") == ["ask"]
    assert team.received("b") == team.received("c") == ["ask", "a1", "ask"]
    assert team.received("d") == ["ask", "a1", "ask", "b1", "ask", "c1", "ask"]
    assert await team.texts("workflow") == ["ask", "a1", "ask", "b1", "ask", "c1", "ask", "d1"]
    assert await team.store.threads("workflow-W-e") == ["workflow"]


async def test_per_agent_conversation_contains_only_own_turns() -> None:
    team = Team("per_agent")
    builder = team.added("a", "b").with_max_iterations(3).from_("a").to("b")
    await builder.from_("b").to("a").when_not_equals("answer", "b3").build().run("x", "e")
    assert [team.received("a", turn) for turn in range(3)] == [
        ["ask"],
        ["ask", "a1", "ask"],
        ["ask", "a1", "ask", "a2", "ask"],
    ]
    assert team.received("b") == ["ask", "b1", "ask", "b2", "ask"]
    assert await team.store.threads("workflow-W-e") == ["workflow-agent-a", "workflow-agent-b"]


async def test_fork_per_agent_conversation_diverges_at_the_first_turn() -> None:
    team = Team("fork_per_agent")
    builder = team.added("a", "b").with_max_iterations(2).from_("a").to("b")
    await builder.from_("b").to("a").when_not_equals("answer", "b2").build().run("x", "e")
    assert [team.received("a", turn) for turn in range(2)] == [["ask"], ["ask", "a1", "ask"]]
    assert [team.received("b", turn) for turn in range(2)] == [["ask", "a1", "ask"], ["ask", "a1", "ask", "b1", "ask"]]
    assert await team.texts("workflow") == ["ask", "a1", "ask", "b1", "ask", "a2", "ask", "b2"]
    assert await team.texts("workflow-agent-b") == ["ask", "a1", "ask", "b1", "ask", "b2"]


async def test_in_a_shared_loop_a_node_knows_its_earlier_turn() -> None:
    team = Team("shared")
    builder = team.added("a", "b").with_max_iterations(2).from_("a").to("b")
    await builder.from_("b").to("a").when_not_equals("answer", "b2").build().run("x", "e")
    assert team.received("a") == ["ask", "a1", "ask", "b1", "ask"]


async def test_threads_are_named_as_configured() -> None:
    team = Team(ConversationConfig(mode="fork_per_agent", root_thread_id="main", thread_prefix="fork"))
    await team.added("a").build().run("x", "e")
    assert await team.store.threads("workflow-W-e") == ["fork-a", "main"]


async def test_entries_record_workflow_execution_node_time_and_author() -> None:
    team, clock = Team("shared"), FakeClock()
    builder = team.added("a").with_clock(clock)
    began: datetime = clock.now()
    await builder.build().run("x", "e")
    [head] = await team.store.heads("workflow-W-e")
    [entry] = (await team.store.read("workflow-W-e", head.version)).values()
    assert (entry.workflow_name, entry.execution_id, entry.node_id, entry.at) == ("W", "e", "a", began)
    assert [(message.role, message.author_name) for message in entry.messages] == [("user", None), ("assistant", "a")]


# ---------------------------------------------------------------- what is part of it


async def test_instructions_of_a_node_are_not_part_of_the_conversation() -> None:
    team = Team("shared")
    team.builder.add_agent("z", RecordingAgent("z1", name="z"), lambda node: node.with_instructions("Be brief."))
    await team.added("a").from_("z").to("a").build().run("x", "e")
    assert team.received("a") == ["x", "z1", "ask"]


async def test_conversation_contains_approved_outputs_and_not_denied_outputs() -> None:
    for approved, expected in ((True, ["x", "z1", "ask"]), (False, ["ask"])):
        team = Team("shared")
        team.builder.add_agent("z", RecordingAgent("z1", name="z"), lambda node: node.requires_approval("Well?"))
        team.added("a").from_("START").to("z", "a").from_("z").to("a")
        workflow = team.builder.build()
        waiting = await workflow.run("x", "e")
        assert await team.store.sessions() == []
        request_id = waiting.pending[0].request_id
        result = await (workflow.approve(request_id) if approved else workflow.deny(request_id))
        assert result.state == "completed" and team.received("a") == expected


async def test_a_turn_that_failed_is_not_part_of_the_conversation() -> None:
    team = Team("shared")
    failing = ScriptedAgent("z", [ValueError("boom")])
    team.builder.add_agent("z", failing, lambda node: node.on_error_isolate())
    await team.added("a", "b").from_("z").to("b").from_("a").to("b").build().run("x", "e")
    assert team.received("b") == ["ask", "a1", "ask"]


async def test_retried_turn_appears_once_in_the_conversation() -> None:
    replies: Iterator[str | BaseException] = iter([ValueError("busy"), "z1"])
    team = Team("shared")
    agent = ScriptedAgent("z", lambda messages: next(replies))
    team.builder.add_agent("z", agent, lambda node: node.with_retry(2, initial_delay=0.0))
    await team.added("a").from_("z").to("a").build().run("x", "e")
    assert team.received("a") == ["x", "z1", "ask"]


async def test_map_items_see_earlier_turns_and_are_recorded_in_item_order() -> None:
    team, received = Team("shared"), dict[str, list[str]]()

    def reply(messages: list[Message]) -> str:
        received[messages[-1].text] = [message.text for message in messages]
        return f"<{messages[-1].text}>"

    mapping = ScriptedAgent("m", reply)
    team.builder.add_agent("m", mapping, lambda node: node.map_over("input.items", max_parallel=3))
    await team.added("a", "b").from_("a").to("m").from_("m").to("b").build().run({"items": ["1", "2", "3"]}, "e")
    assert received == {item: ["ask", "a1", item] for item in ("1", "2", "3")}
    assert team.received("b") == ["ask", "a1", "1", "<1>", "2", "<2>", "3", "<3>", "ask"]


async def test_tool_result_reaches_other_agents_as_plain_data() -> None:
    def weather() -> dict[str, Any]:
        """How warm it is."""
        return {"degrees": 12, "at": datetime(2026, 3, 1, tzinfo=UTC)}

    team = Team("shared")
    team.builder.add_agent("z", ScriptedAgent("z", [Call("weather"), "Twelve."], tools=[weather]))
    await team.added("a").from_("z").to("a").build().run("x", "e")
    [result] = team.agents["a"].received[0][2].of_type("function_result")
    assert result.result == {"degrees": 12, "at": "2026-03-01T00:00:00Z"}
    assert team.received("a") == ["x", "", "", "Twelve.", "ask"]


# ---------------------------------------------------------------- sessions of several executions


def together(mode: str, store: InMemorySessionStore | None = None) -> Team:
    return Team(ConversationConfig(mode=mode, session_id="chat"), store)  # type: ignore[arg-type]


async def test_execution_in_a_shared_session_continues_its_conversation() -> None:
    team = together("shared")
    workflow = team.added("a").build()
    await workflow.run("x", "e1")
    await workflow.run("x", "e2")
    assert team.received("a") == ["ask", "a1", "ask"]
    assert await team.texts("workflow", "chat") == ["ask", "a1", "ask", "a2"]
    assert await team.texts("workflow", "chat", execution_id="e1") == ["ask", "a1"]
    assert await team.store.sessions() == ["chat"]


async def test_per_agent_threads_continue_in_a_shared_session() -> None:
    team = together("per_agent")
    workflow = team.added("a", "b").from_("a").to("b").build()
    await workflow.run("x", "e1")
    await workflow.run("x", "e2")
    assert team.received("b") == ["ask", "b1", "ask"]


async def test_root_of_forks_contains_their_turns_and_no_earlier_turns() -> None:
    store = InMemorySessionStore()
    await together("per_agent", store).added("a").build().run("x", "e1")
    team = together("fork_per_agent", store)
    await team.added("a", "b").from_("a").to("b").build().run("x", "e2")
    assert team.received("a") == ["ask", "a1", "ask"]
    assert team.received("b") == ["ask", "a1", "ask"]  # this a1 is of execution e2
    assert await team.texts("workflow", "chat") == ["ask", "a1", "ask", "b1"]
    assert await team.texts("workflow-agent-a", "chat") == ["ask", "a1", "ask", "a1"]


async def test_concurrent_executions_are_isolated_and_the_next_sees_both() -> None:
    team = together("shared")
    team.builder.add_agent(
        "z", RecordingAgent("z1", "z2", "z3", name="z"), lambda node: node.requires_approval("Well?")
    )
    workflow = team.added("a").from_("a").to("z").build()
    first, second = await workflow.run("x", "e1"), await workflow.run("x", "e2")  # both wait, after a spoke
    assert team.received("a") == ["ask", "a1", "ask"]
    for result in (first, second):
        await workflow.approve(result.pending[0].request_id)
    assert await team.texts("workflow", "chat", execution_id="e1") == ["ask", "a1", "x", "z1"]
    assert await team.texts("workflow", "chat", execution_id="e2") == ["ask", "a1", "ask", "a2", "x", "z2"]
    third = await workflow.run("x", "e3")
    assert team.received("a") == ["ask", "a1", "x", "z1", "ask", "a2", "x", "z2", "ask"]
    await workflow.approve(third.pending[0].request_id)
    fourth = await workflow.run("x", "e4")
    assert fourth.state == "waiting"
    assert team.received("a") == ["ask", "a1", "x", "z1", "ask", "a2", "x", "z2", "ask", "a3", "x", "z3", "ask"]


async def test_running_execution_does_not_see_turns_of_others_in_the_session() -> None:
    team = together("shared")
    gate = RecordingAgent("z1", "z2", name="z")
    team.builder.add_agent("z", gate, lambda node: node.requires_approval("Well?").with_input_template("gate"))
    workflow = team.added("a", "b").from_("z").to("a", "b").build()
    waiting = await workflow.run("x", "e1")
    other = await workflow.run("x", "e2")
    await workflow.approve(other.pending[0].request_id)
    await workflow.approve(waiting.pending[0].request_id)
    assert team.received("b", 0) == ["gate", "z2", "ask"]
    assert team.received("b", 1) == ["gate", "z1", "ask"]


async def test_own_session_starts_empty_even_if_the_execution_id_is_reused() -> None:
    store = InMemorySessionStore()
    agent = RecordingAgent("a1", "a2", name="a")
    builder = drafted("W").with_session_store(store).with_conversation("shared").add_agent("a", agent)
    workflow = builder.build()  # executions are forgotten when they end
    await workflow.run("x", "e")
    await workflow.run("x", "e")
    assert [[message.text for message in messages] for messages in agent.received] == [["x"], ["x"]]


async def test_a_workflow_that_is_a_node_has_its_own_conversation() -> None:
    store = InMemorySessionStore()
    inner_agent = RecordingAgent("i1", name="i")
    inner = drafted("inner").with_session_store(store).with_conversation("shared").add_agent("i", inner_agent).build()
    team = Team("shared", store)
    team.added("a").add_workflow("sub", inner, lambda node: node.with_input_key("a.answer"))
    await team.added("b").from_("a").to("sub").from_("sub").to("b").build().run("x", "e")
    assert [message.text for message in inner_agent.received[0]] == ["a1"]
    assert team.received("b") == ["ask", "a1", "ask"]
    assert await store.sessions() == ["workflow-W-e", "workflow-inner-e"]


# ---------------------------------------------------------------- other agents, lost stores


class Remembering:
    """An agent of another framework that stores a value in its session."""

    name = "r"

    async def run(self, messages: list[Message], *, session: AgentSession) -> str:
        session.state["turns"] = session.state.get("turns", 0) + 1
        known, session.service_session_id = session.service_session_id, "remote-7"
        return f"r{session.state['turns']} {known}, of {len(session.messages)}"


class Forgetful:
    """An agent that takes no session."""

    name = "f"

    async def run(self, messages: list[Message]) -> str:
        return "heard " + " ".join(message.text for message in messages)


async def test_session_state_is_stored_per_agent_without_the_service_session() -> None:
    team = together("shared")
    other = RecordingAgent("q1", "q2", name="q")
    team.builder.add_agent("r", Remembering()).add_agent("q", other).from_("r").to("q")
    workflow = team.builder.build()
    assert (await workflow.run("x", "e1")).outputs["r.answer"] == "r1 None, of 0"
    assert (await workflow.run("x", "e2")).outputs["r.answer"] == "r2 None, of 4"
    [head] = [head for head in await team.store.heads("chat") if head.execution_id == "e2"]
    entries = (await team.store.read("chat", head.version)).values()
    assert [(entry.node_id, entry.state.get("turns")) for entry in entries] == [
        ("r", 1),
        ("q", None),
        ("r", 2),
        ("q", None),
    ]


async def test_agent_without_session_support_receives_the_conversation() -> None:
    team = Team("shared")
    team.added("a").add_agent("f", Forgetful()).from_("a").to("f")
    result = await team.builder.build().run("x", "e")
    assert result.outputs["f.answer"] == "heard ask a1 x"


async def test_lost_session_stops_the_execution_despite_on_error_skip() -> None:
    team = Team("shared")
    team.builder.add_agent("z", RecordingAgent("z1", name="z"), lambda node: node.requires_approval("Well?"))
    team.added("a").from_("a").to("z")
    team.builder.add_agent("last", RecordingAgent("l1", name="l"), lambda node: node.on_error_skip()).from_("z").to(
        "last"
    )
    workflow = team.builder.build()
    waiting = await workflow.run("x", "e")
    await team.store.delete("workflow-W-e")
    with pytest.raises(ConversationNotFound, match="of session 'workflow-W-e'"):
        await workflow.approve(waiting.pending[0].request_id)


def test_build_rejects_a_conversation_without_a_session_store() -> None:
    builder = kept("W").with_conversation("shared").add_agent("a", RecordingAgent("a1"))
    with pytest.raises(ValueError, match=r"settings\.conversation\.mode: .*the workflow has no session store"):
        builder.build()
