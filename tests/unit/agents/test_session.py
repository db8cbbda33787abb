"""AgentSession: only ever added to, copied without sharing, exact in JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.unit.agents.conversations import anything, messages, texts

from perdure import AgentExecutor, InMemoryCheckpointStorage, Workflow, WorkflowBuilder
from perdure.agents import AgentResponse, RecordingAgent
from perdure.agents.conversation.message import AgentSession, Message


@given(st.lists(messages, max_size=3), st.dictionaries(texts, anything, max_size=2))
def test_session_survives_a_json_round_trip(conversation: list[Message], state: dict[str, object]) -> None:
    session = AgentSession(messages=conversation, service_session_id="abc", state=state)
    assert repr(AgentSession.from_dict(session.to_dict())) == repr(session)


def test_copy_of_a_session_shares_nothing_mutable() -> None:
    session = AgentSession(messages=[Message("user", "hi")], state={"seen": [1]})
    copy = session.copy()
    copy.add([Message("user", "there")])
    copy.state["seen"].append(2)
    assert session.version == 1 and session.state == {"seen": [1]}
    assert copy.session_id == session.session_id


def test_each_session_has_an_id_of_its_own() -> None:
    assert AgentSession().session_id != AgentSession().session_id


def test_invalid_session_data_is_rejected() -> None:
    for data in ({"type": "session"}, None, {"session_id": 5}, {"session_id": "a", "state": [1]}):
        with pytest.raises(ValueError, match="Not an AgentSession"):
            AgentSession.from_dict(data)  # type: ignore[arg-type]


class Editor(RecordingAgent):
    """Changes the oldest message of its session in each turn, and also the messages that it has kept from earlier."""

    def __init__(self) -> None:
        super().__init__("editor")
        self.kept: list[Message] = []

    async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
        assert session is not None
        texts = [message.text for message in session.messages]
        for message in self.kept:
            message.contents[0].text = "changed too late"
            message.additional_properties["changed"] = True
        for message in session.messages[:1]:
            message.contents[0].text = f"edited {session.version}"
        self.kept += session.messages
        return AgentResponse(messages=[Message("assistant", " | ".join(texts), self.name)])


def edits(storage: Any) -> Workflow:
    return WorkflowBuilder(start_executor=AgentExecutor(Editor()), checkpoint_storage=storage, name="edits").build()


@pytest.mark.parametrize("storage", [None, InMemoryCheckpointStorage()])
async def test_message_of_a_session_changed_in_place_is_stored_as_it_then_was(storage: Any) -> None:
    flow = edits(storage)
    outputs = [(await flow.run(text, thread_id="t")).get_outputs()[0].text for text in ("a", "b", "c")]
    assert outputs == ["", "a | ", "edited 2 |  | b | a | "]
    if storage is not None:
        assert (await edits(storage).run("d", thread_id="t")).get_outputs()[0].text.startswith("edited 4 |  | b")
        head = await storage.get_latest(workflow_name="edits")
        [first, *_] = head.executors["editor"].private["session"].messages
        assert (first.text, first.additional_properties) == ("edited 6", {})
