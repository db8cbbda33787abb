"""What agents of a workflow know of each other's turns, by conversation policy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.orchestrations.agent_workflow.making import Overheard, drafted, kept

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.conversations.store import InMemorySessionStore
from perdure.agent_workflow.definition.config import ConversationConfig
from perdure.agents.conversation.message import AgentSession, Message
from perdure.errors import ConversationNotFound
from perdure.testing import Call, FakeClock, ScriptedAgent

NODES = ("a", "b", "c", "d")


class Team:
    """a, then b and c at the same time, then d; each says its name with the number of its turn."""

    def __init__(self, mode: Any, store: InMemorySessionStore | None = None) -> None:
        self.store = store or InMemorySessionStore()
        self.agents = {node: Overheard(*(f"{node}{n}" for n in range(1, 9)), name=node) for node in NODES}
        self.builder = kept("W").with_session_store(self.store).with_conversation(mode)

    def added(self, *nodes: str) -> AgentWorkflow:
        for node in nodes:
            self.builder.add_agent(node, self.agents[node], lambda options: options.with_input_template("ask"))
        return self.builder

    def diamond(self) -> AgentWorkflow:
        return self.added(*NODES).from_("a").to("b", "c").from_("b", "c").to("d")

    def heard(self, node: str, turn: int = -1) -> list[str]:
        return [message.text for message in self.agents[node].heard[turn]]

    async def said(self, thread_id: str, session_id: str = "workflow-W-e", **which: Any) -> list[str]:
        return [message.text for message in await self.store.messages(session_id, thread_id, **which)]


# ---------------------------------------------------------------- policies


async def test_with_no_conversation_an_agent_hears_its_input_alone() -> None:
    team = Team("none")
    await team.diamond().build().run("x", "e")
    assert [team.heard(node) for node in NODES] == [["ask"]] * 4
    assert await team.store.sessions() == []


async def test_shared_everybody_knows_all_that_was_said_before_they_were_asked() -> None:
    team = Team("shared")
    await team.diamond().build().run("x", "e")
    assert team.heard("a") == ["ask"]
    assert team.heard("b") == team.heard("c") == ["ask", "a1", "ask"]
    assert team.heard("d") == ["ask", "a1", "ask", "b1", "ask", "c1", "ask"]
    assert await team.said("workflow") == ["ask", "a1", "ask", "b1", "ask", "c1", "ask", "d1"]
    assert await team.store.threads("workflow-W-e") == ["workflow"]


async def test_per_agent_each_knows_its_own_turns() -> None:
    team = Team("per_agent")
    builder = team.added("a", "b").with_max_iterations(3).from_("a").to("b")
    await builder.from_("b").to("a").when_not_equals("answer", "b3").build().run("x", "e")
    assert [team.heard("a", turn) for turn in range(3)] == [
        ["ask"],
        ["ask", "a1", "ask"],
        ["ask", "a1", "ask", "a2", "ask"],
    ]
    assert team.heard("b") == ["ask", "b1", "ask", "b2", "ask"]
    assert await team.store.threads("workflow-W-e") == ["workflow-agent-a", "workflow-agent-b"]


async def test_fork_per_agent_each_goes_its_own_way_from_when_it_was_first_asked() -> None:
    team = Team("fork_per_agent")
    builder = team.added("a", "b").with_max_iterations(2).from_("a").to("b")
    await builder.from_("b").to("a").when_not_equals("answer", "b2").build().run("x", "e")
    assert [team.heard("a", turn) for turn in range(2)] == [["ask"], ["ask", "a1", "ask"]]
    assert [team.heard("b", turn) for turn in range(2)] == [["ask", "a1", "ask"], ["ask", "a1", "ask", "b1", "ask"]]
    assert await team.said("workflow") == ["ask", "a1", "ask", "b1", "ask", "a2", "ask", "b2"]
    assert await team.said("workflow-agent-b") == ["ask", "a1", "ask", "b1", "ask", "b2"]


async def test_in_a_shared_loop_a_node_knows_its_earlier_turn() -> None:
    team = Team("shared")
    builder = team.added("a", "b").with_max_iterations(2).from_("a").to("b")
    await builder.from_("b").to("a").when_not_equals("answer", "b2").build().run("x", "e")
    assert team.heard("a") == ["ask", "a1", "ask", "b1", "ask"]


async def test_threads_are_named_as_the_config_says() -> None:
    team = Team(ConversationConfig(mode="fork_per_agent", root_thread_id="main", thread_prefix="fork"))
    await team.added("a").build().run("x", "e")
    assert await team.store.threads("workflow-W-e") == ["fork-a", "main"]


async def test_entries_say_who_spoke_where_and_when() -> None:
    team, clock = Team("shared"), FakeClock()
    builder = team.added("a").with_clock(clock)
    began: datetime = clock.now()
    await builder.build().run("x", "e")
    [head] = await team.store.heads("workflow-W-e")
    [entry] = (await team.store.read("workflow-W-e", head.version)).values()
    assert (entry.workflow_name, entry.execution_id, entry.node_id, entry.at) == ("W", "e", "a", began)
    assert [(one.role, one.author_name) for one in entry.messages] == [("user", None), ("assistant", "a")]


# ---------------------------------------------------------------- what is part of it


async def test_what_only_the_node_tells_its_agent_is_not_part_of_the_conversation() -> None:
    team = Team("shared")
    team.builder.add_agent("z", Overheard("z1", name="z"), lambda node: node.with_instructions("Be brief."))
    await team.added("a").from_("z").to("a").build().run("x", "e")
    assert team.heard("a") == ["x", "z1", "ask"]


async def test_what_was_denied_is_not_part_of_the_conversation_and_what_was_approved_is() -> None:
    for approved, expected in ((True, ["x", "z1", "ask"]), (False, ["ask"])):
        team = Team("shared")
        team.builder.add_agent("z", Overheard("z1", name="z"), lambda node: node.requires_approval("Well?"))
        team.added("a").from_("START").to("z", "a").from_("z").to("a")
        workflow = team.builder.build()
        waiting = await workflow.run("x", "e")
        assert await team.store.sessions() == []
        request_id = waiting.pending[0].request_id
        result = await (workflow.approve(request_id) if approved else workflow.deny(request_id))
        assert result.state == "completed" and team.heard("a") == expected


async def test_a_turn_that_failed_is_not_part_of_the_conversation() -> None:
    team = Team("shared")
    failing = ScriptedAgent("z", [ValueError("boom")])
    team.builder.add_agent("z", failing, lambda node: node.on_error_isolate())
    await team.added("a", "b").from_("z").to("b").from_("a").to("b").build().run("x", "e")
    assert team.heard("b") == ["ask", "a1", "ask"]


async def test_a_turn_that_was_tried_again_is_said_once() -> None:
    replies: Iterator[str | BaseException] = iter([ValueError("busy"), "z1"])
    team = Team("shared")
    agent = ScriptedAgent("z", lambda messages: next(replies))
    team.builder.add_agent("z", agent, lambda node: node.with_retry(2, initial_delay=0.0))
    await team.added("a").from_("z").to("a").build().run("x", "e")
    assert team.heard("a") == ["x", "z1", "ask"]


async def test_items_of_a_map_know_what_was_said_before_and_are_heard_in_their_order() -> None:
    team, heard = Team("shared"), dict[str, list[str]]()

    def reply(messages: list[Message]) -> str:
        heard[messages[-1].text] = [message.text for message in messages]
        return f"<{messages[-1].text}>"

    mapping = ScriptedAgent("m", reply)
    team.builder.add_agent("m", mapping, lambda node: node.map_over("input.items", max_parallel=3))
    await team.added("a", "b").from_("a").to("m").from_("m").to("b").build().run({"items": ["1", "2", "3"]}, "e")
    assert heard == {item: ["ask", "a1", item] for item in ("1", "2", "3")}
    assert team.heard("b") == ["ask", "a1", "1", "<1>", "2", "<2>", "3", "<3>", "ask"]


async def test_a_tools_result_is_known_to_others_as_data() -> None:
    def weather() -> dict[str, Any]:
        """How warm it is."""
        return {"degrees": 12, "at": datetime(2026, 3, 1, tzinfo=UTC)}

    team = Team("shared")
    team.builder.add_agent("z", ScriptedAgent("z", [Call("weather"), "Twelve."], tools=[weather]))
    await team.added("a").from_("z").to("a").build().run("x", "e")
    [result] = team.agents["a"].heard[0][2].of_type("function_result")
    assert result.result == {"degrees": 12, "at": "2026-03-01T00:00:00Z"}
    assert team.heard("a") == ["x", "", "", "Twelve.", "ask"]


# ---------------------------------------------------------------- sessions of several executions


def together(mode: str, store: InMemorySessionStore | None = None) -> Team:
    return Team(ConversationConfig(mode=mode, session_id="chat"), store)  # type: ignore[arg-type]


async def test_an_execution_in_a_shared_session_goes_on_from_what_was_said_before() -> None:
    team = together("shared")
    workflow = team.added("a").build()
    await workflow.run("x", "e1")
    await workflow.run("x", "e2")
    assert team.heard("a") == ["ask", "a1", "ask"]
    assert await team.said("workflow", "chat") == ["ask", "a1", "ask", "a2"]
    assert await team.said("workflow", "chat", execution_id="e1") == ["ask", "a1"]
    assert await team.store.sessions() == ["chat"]


async def test_per_agent_in_a_shared_session_each_goes_on_with_its_own() -> None:
    team = together("per_agent")
    workflow = team.added("a", "b").from_("a").to("b").build()
    await workflow.run("x", "e1")
    await workflow.run("x", "e2")
    assert team.heard("b") == ["ask", "b1", "ask"]


async def test_the_root_of_forks_has_what_was_said_in_them_and_nothing_of_before() -> None:
    store = InMemorySessionStore()
    await together("per_agent", store).added("a").build().run("x", "e1")
    team = together("fork_per_agent", store)
    await team.added("a", "b").from_("a").to("b").build().run("x", "e2")
    assert team.heard("a") == ["ask", "a1", "ask"]
    assert team.heard("b") == ["ask", "a1", "ask"]  # this a1 was said just now
    assert await team.said("workflow", "chat") == ["ask", "a1", "ask", "b1"]
    assert await team.said("workflow-agent-a", "chat") == ["ask", "a1", "ask", "a1"]


async def test_executions_at_the_same_time_do_not_see_each_other_and_the_next_one_knows_both() -> None:
    team = together("shared")
    team.builder.add_agent("z", Overheard("z1", "z2", "z3", name="z"), lambda node: node.requires_approval("Well?"))
    workflow = team.added("a").from_("a").to("z").build()
    first, second = await workflow.run("x", "e1"), await workflow.run("x", "e2")  # both wait, after a spoke
    assert team.heard("a") == ["ask", "a1", "ask"]
    for one in (first, second):
        await workflow.approve(one.pending[0].request_id)
    assert await team.said("workflow", "chat", execution_id="e1") == ["ask", "a1", "x", "z1"]
    assert await team.said("workflow", "chat", execution_id="e2") == ["ask", "a1", "ask", "a2", "x", "z2"]
    third = await workflow.run("x", "e3")
    assert team.heard("a") == ["ask", "a1", "x", "z1", "ask", "a2", "x", "z2", "ask"]
    await workflow.approve(third.pending[0].request_id)
    fourth = await workflow.run("x", "e4")
    assert fourth.state == "waiting"
    assert team.heard("a") == ["ask", "a1", "x", "z1", "ask", "a2", "x", "z2", "ask", "a3", "x", "z3", "ask"]


async def test_what_others_say_in_the_session_is_not_heard_by_an_execution_that_has_begun() -> None:
    team = together("shared")
    gate = Overheard("z1", "z2", name="z")
    team.builder.add_agent("z", gate, lambda node: node.requires_approval("Well?").with_input_template("gate"))
    workflow = team.added("a", "b").from_("z").to("a", "b").build()
    waiting = await workflow.run("x", "e1")
    other = await workflow.run("x", "e2")
    await workflow.approve(other.pending[0].request_id)
    await workflow.approve(waiting.pending[0].request_id)
    assert team.heard("b", 0) == ["gate", "z2", "ask"]
    assert team.heard("b", 1) == ["gate", "z1", "ask"]


async def test_an_execution_of_its_own_session_begins_with_nothing_though_its_id_was_used_before() -> None:
    store = InMemorySessionStore()
    agent = Overheard("a1", "a2", name="a")
    builder = drafted("W").with_session_store(store).with_conversation("shared").add_agent("a", agent)
    workflow = builder.build()  # executions are forgotten when they end
    await workflow.run("x", "e")
    await workflow.run("x", "e")
    assert [[message.text for message in one] for one in agent.heard] == [["x"], ["x"]]


async def test_a_workflow_that_is_a_node_has_its_own_conversation() -> None:
    store = InMemorySessionStore()
    inner_agent = Overheard("i1", name="i")
    inner = drafted("inner").with_session_store(store).with_conversation("shared").add_agent("i", inner_agent).build()
    team = Team("shared", store)
    team.added("a").add_workflow("sub", inner, lambda node: node.with_input_key("a.answer"))
    await team.added("b").from_("a").to("sub").from_("sub").to("b").build().run("x", "e")
    assert [message.text for message in inner_agent.heard[0]] == ["a1"]
    assert team.heard("b") == ["ask", "a1", "ask"]
    assert await store.sessions() == ["workflow-W-e", "workflow-inner-e"]


# ---------------------------------------------------------------- other agents, lost stores


class Remembering:
    """An agent of somebody else's that keeps something in its session."""

    name = "r"

    async def run(self, messages: list[Message], *, session: AgentSession) -> str:
        session.state["turns"] = session.state.get("turns", 0) + 1
        known, session.service_session_id = session.service_session_id, "remote-7"
        return f"r{session.state['turns']} {known}, of {len(session.messages)}"


class Forgetful:
    """One that knows of no sessions."""

    name = "f"

    async def run(self, messages: list[Message]) -> str:
        return "heard " + " ".join(message.text for message in messages)


async def test_what_an_agent_keeps_in_its_session_is_kept_for_it_alone_but_no_conversation_of_a_service() -> None:
    team = together("shared")
    other = Overheard("q1", "q2", name="q")
    team.builder.add_agent("r", Remembering()).add_agent("q", other).from_("r").to("q")
    workflow = team.builder.build()
    assert (await workflow.run("x", "e1")).outputs["r.answer"] == "r1 None, of 0"
    assert (await workflow.run("x", "e2")).outputs["r.answer"] == "r2 None, of 4"
    [head] = [one for one in await team.store.heads("chat") if one.execution_id == "e2"]
    entries = (await team.store.read("chat", head.version)).values()
    assert [(one.node_id, one.state.get("turns")) for one in entries] == [("r", 1), ("q", None), ("r", 2), ("q", None)]


async def test_an_agent_that_takes_no_session_is_told_what_was_said() -> None:
    team = Team("shared")
    team.added("a").add_agent("f", Forgetful()).from_("a").to("f")
    result = await team.builder.build().run("x", "e")
    assert result.outputs["f.answer"] == "heard ask a1 x"


async def test_a_session_that_was_lost_stops_the_execution_whatever_the_node_does_about_errors() -> None:
    team = Team("shared")
    team.builder.add_agent("z", Overheard("z1", name="z"), lambda node: node.requires_approval("Well?"))
    team.added("a").from_("a").to("z")
    team.builder.add_agent("last", Overheard("l1", name="l"), lambda node: node.on_error_skip()).from_("z").to("last")
    workflow = team.builder.build()
    waiting = await workflow.run("x", "e")
    await team.store.delete("workflow-W-e")
    with pytest.raises(ConversationNotFound, match="of session 'workflow-W-e'"):
        await workflow.approve(waiting.pending[0].request_id)


def test_a_conversation_without_a_session_store_is_refused_when_it_is_built() -> None:
    builder = kept("W").with_conversation("shared").add_agent("a", Overheard("a1"))
    with pytest.raises(ValueError, match=r"settings\.conversation\.mode: .*there is no session store"):
        builder.build()
