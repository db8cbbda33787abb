"""Threads with agents on the command line: their printed messages, and the answer to an approval."""

from __future__ import annotations

import json

from tests.e2e.conftest import Call


def test_approval_is_printed_with_its_command_and_answered(call: Call) -> None:
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


def test_rejection_passes_the_reason_to_the_agent(call: Call) -> None:
    call("run", "office:desk", "Write about tides", "--thread", "t")
    [request] = json.loads(call("requests", "--json").stdout)
    answer = '{"approved": false, "reason": "Too early."}'
    answered = call("answer", "t", request["request_id"], answer, "--app", "office:desk")
    assert "Too early." in answered.stdout and "'Tides' is out" not in answered.stdout
