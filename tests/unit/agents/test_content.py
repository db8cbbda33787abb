"""Content: exact in JSON, answered, rejected where it is invalid."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.unit.agents.conversations import contents

from perdure.agents.conversation.content import Content, add_usage


@given(contents)
def test_content_survives_a_json_round_trip(content: Content) -> None:
    assert repr(Content.from_json(content.to_json())) == repr(content)
    assert repr(Content.from_dict(content.to_dict())) == repr(content)


def test_to_dict_has_only_the_fields_that_are_set() -> None:
    assert Content.from_text("hi").to_dict() == {"type": "text", "text": "hi", "additional_properties": {}}
    call = Content.from_function_call("c1", "search", arguments={"query": "tides"})
    assert call.to_dict() == {
        "type": "function_call",
        "call_id": "c1",
        "name": "search",
        "arguments": {"query": "tides"},
        "additional_properties": {},
    }


def test_unknown_fields_are_kept_as_additional_properties() -> None:
    data = {"type": "text_reasoning", "text": "hm", "signature": "xyz", "later": False, "annotations": None}
    assert Content.from_dict(data).additional_properties == {"signature": "xyz"}


@pytest.mark.parametrize(
    "data", [{}, {"type": 3}, {"type": "text", "text": 5}, {"type": "usage", "usage_details": {"a": "b"}}]
)
def test_from_dict_rejects_invalid_contents(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Not a Content"):
        Content.from_dict(data)


@pytest.mark.parametrize("data", [[], 3, None])
def test_from_dict_rejects_other_types_than_dict(data: Any) -> None:
    with pytest.raises(ValueError, match="Not a Content"):
        Content.from_dict(data)


def test_data_content_returns_its_original_bytes() -> None:
    assert Content.from_data(b"\x00\xff", "image/png").data_bytes() == b"\x00\xff"
    with pytest.raises(ValueError, match="holds no data"):
        Content.from_text("hi").data_bytes()


def test_approval_answers_the_request_and_can_change_the_arguments() -> None:
    call = Content.from_function_call("c1", "pay", arguments='{"amount": 5}')
    request = Content.from_function_approval_request("r1", call)
    assert request.user_input_request
    assert request.approve() == Content.from_function_approval_response(True, "r1", call)
    changed = request.approve({"amount": 3}).function_call
    assert changed is not None and changed.parse_arguments() == {"amount": 3}
    assert request.reject("too much").reason == "too much"
    with pytest.raises(ValueError, match="Only a function_approval_request"):
        call.approve()


@pytest.mark.parametrize("arguments", ["no json", "[1]", "3"])
def test_arguments_that_are_not_a_json_object_are_rejected(arguments: str) -> None:
    with pytest.raises(ValueError, match="arguments of 'pay' are not"):
        Content.from_function_call("c1", "pay", arguments=arguments).parse_arguments()


def test_usage_adds_up_by_name() -> None:
    assert add_usage({"input": 1, "cached": 2}, {"input": 3}) == {"input": 4, "cached": 2}
    assert add_usage(None, None) == {}
