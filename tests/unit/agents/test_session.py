"""AgentSession: only ever added to, copied without sharing, exact in JSON."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.unit.agents.conversations import anything, messages, texts

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
