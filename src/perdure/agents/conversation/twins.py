"""Agent Framework's messages, contents, responses and sessions: conversions from and to ours, and their stored form.

The framework is not imported here: its classes are found when the program has imported it.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from perdure.agents.conversation.content import Content, as_content
from perdure.agents.conversation.json_struct import TwinType, framework_class
from perdure.agents.conversation.message import AgentSession, Message, as_message, as_session
from perdure.agents.conversation.response import AgentResponse, as_response
from perdure.agents.conversation.update import AgentResponseUpdate, as_update
from perdure.codecs.types import register_type
from perdure.twins import Twin


@lru_cache(16)
def _parameters(cls: type) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)


def to_framework(value: Any) -> Any:
    """The value with each message, content and response of ours as the framework's; other values unchanged."""
    if type(value) is list:
        return [to_framework(item) for item in value]
    if not isinstance(type(value), TwinType):
        return value
    cls = framework_class(value.twin)
    if isinstance(value, Content) and value.type == "function_result" and value.items is None:
        return _function_result(value, cls)
    names = [name for name in value.__struct_fields__ if name in _parameters(cls)]
    fields = {name: to_framework(getattr(value, name)) for name in names}
    if not fields.get("hosted"):
        fields["hosted"] = None  # only for calls
    return cls(**{name: item for name, item in fields.items() if item is not None})


def _function_result(value: Content, cls: Any) -> Any:
    """The framework's result is a text and contents. Its model gets the error of a function that raised."""
    result = value.result if value.result is not None else value.exception
    content = cls.from_function_result(value.call_id, result=result, exception=value.exception)
    content.additional_properties = dict(value.additional_properties)
    content.id = value.id
    return content


def session_to_framework(session: AgentSession) -> Any:
    theirs = framework_class("AgentSession")(
        session_id=session.session_id, service_session_id=session.service_session_id
    )
    theirs.state.update(session.state)
    return theirs


_TWINS = (
    Twin(Content, as_content, to_framework),
    Twin(Message, as_message, to_framework),
    Twin(AgentResponse, lambda value: as_response(value, None), to_framework),
    Twin(AgentResponseUpdate, lambda value: as_update(value, None), to_framework),
    Twin(AgentSession, as_session, session_to_framework),
)
_loaded: dict[type, Twin] = {}


def load() -> dict[type, Twin]:
    """By class of the framework. The first call with a loaded framework registers the stored forms."""
    if not _loaded and framework_class("Message") is not None:
        _loaded.update({framework_class(twin.own.twin): twin for twin in _TWINS})  # type: ignore[attr-defined]
        for cls, twin in _loaded.items():
            is_session = twin.own is AgentSession
            encode, decode = (_fields_of_session, _session_of) if is_session else (twin.to_own, twin.from_own)
            register_type(cls, encode, decode, name=f"agent_framework:{cls.__name__}")
    return _loaded


def _fields_of_session(session: Any) -> list[Any]:
    return [session.session_id, session.service_session_id, session.state]


def _session_of(fields: list[Any]) -> Any:
    return session_to_framework(AgentSession(session_id=fields[0], service_session_id=fields[1], state=fields[2]))
