"""Threads with agents on the command line: what they say in words, and an approval that is answered there."""

from __future__ import annotations

import json

from tests.e2e.conftest import Call


def test_an_approval_is_read_and_answered_by_people(call: Call) -> None:
    asked = call("run", "office:desk", "Write about tides", "--thread", "t")
    assert "writer: The tide turns at six." in asked.stdout
    assert "may publish(title='Tides') be called?" in asked.stdout
    [request] = json.loads(call("requests", "--json").stdout)
    assert f"perdure answer t {request['request_id']} '{{\"approved\": true}}'" in asked.stdout
    refused = call("answer", "t", request["request_id"], '{"type": "text"}', "--app", "office:desk")
    assert refused.returncode != 0 and "The request is still pending." in refused.stderr
    answered = call("answer", "t", request["request_id"], '{"approved": true}', "--app", "office:desk")
    assert answered.returncode == 0
    assert (
        "editor: calls publish(title='Tides') / tool: gave \"'Tides' is out\" / editor: Published." in answered.stdout
    )


def test_a_rejection_tells_the_agent_why(call: Call) -> None:
    call("run", "office:desk", "Write about tides", "--thread", "t")
    [request] = json.loads(call("requests", "--json").stdout)
    answer = '{"approved": false, "reason": "Too early."}'
    answered = call("answer", "t", request["request_id"], answer, "--app", "office:desk")
    assert "Too early." in answered.stdout and "'Tides' is out" not in answered.stdout
