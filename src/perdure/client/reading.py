"""From bytes of an answer to what it says."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from perdure.client.calls import Call
from perdure.client.errors import ClientError, UnreadableAnswer, error_from
from perdure.client.steps import Answered

T = TypeVar("T")


class _Envelope(msgspec.Struct):
    data: msgspec.Raw


def refusal(call: Call[Any], answered: Answered) -> ClientError | None:
    """None for a success."""
    if answered.is_success or answered.status in call.also:
        return None
    if 300 <= answered.status < 400:
        return UnreadableAnswer(
            f"{call.method} {call.path} was sent on to another address. Give the address that answers: credentials are "
            "not sent to any other.",
            status=answered.status,
        )
    return error_from(answered.status, answered.headers, answered.body)


def read(call: Call[T], answered: Answered) -> T:
    """Raises UnreadableAnswer."""
    try:
        found = msgspec.json.decode(answered.body, type=_Envelope).data
        if call.under is not None:
            found = msgspec.json.decode(found, type=dict[str, msgspec.Raw])[call.under]
        value: T = msgspec.json.decode(found, type=call.kind)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        if answered.status in call.also:
            raise error_from(answered.status, answered.headers, answered.body) from error
        where = f"no {call.under!r}" if isinstance(error, KeyError) else str(error)
        raise UnreadableAnswer(
            f"{call.method} {call.path} was answered, but not as this client knows it: {where}. What was asked for may "
            "have been done. Is it the address of a perdure server?",
            status=answered.status,
            request_id=answered.headers.get("x-request-id"),
        ) from error
    return value
