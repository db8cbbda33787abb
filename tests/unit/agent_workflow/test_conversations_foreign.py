"""Agents of other frameworks take part in the conversations of a workflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, kept
from tests.unit.agents.foreign_agents import MAKERS

from perdure.agent_workflow.definition import ConversationConfig
from perdure.agent_workflow.sessions import JsonSessionStore


@pytest.mark.parametrize("framework", MAKERS)
async def test_foreign_agent_receives_and_joins_the_conversation(framework: str, tmp_path: Path) -> None:
    before, after = RecordingAgent("b1", "b2", name="before"), RecordingAgent("a1", "a2", name="after")
    builder = kept("W").with_session_store(JsonSessionStore(tmp_path / "sessions"))
    workflow = (
        builder.with_conversation(ConversationConfig(mode="shared", session_id="chat"))
        .add_agent("before", before, lambda node: node.with_input_template("first"))
        .add_agent("foreign", MAKERS[framework](tmp_path / "log"), lambda node: node.with_input_template("second"))
        .add_agent("after", after, lambda node: node.with_input_template("third"))
        .from_("before")
        .to("foreign")
        .from_("foreign")
        .to("after")
        .build()
    )
    first = (await workflow.run("x", "e1")).outputs["foreign.answer"]
    assert [message.text for message in after.received[0]] == ["first", "b1", "second", first, "third"]
    second = (await workflow.run("x", "e2")).outputs["foreign.answer"]
    assert [message.text for message in after.received[1]][-5:] == ["first", "b2", "second", second, "third"]
    # Some frameworks pass messages of other agents to the model as user messages.
    assert first.replace(" before: b1 |", "") == "heard: first | second"
    reply = second.replace(" before: b1 |", "").replace(" after: a1 |", "").replace(" before: b2 |", "")
    assert reply == "heard: first | second | third | first | second"
    assert "agent_framework" not in stored_in(tmp_path / "sessions")


def stored_in(folder: Path) -> str:
    [path] = folder.glob("conversation-*.jsonl")
    return path.read_text(encoding="utf-8")
