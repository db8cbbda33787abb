"""The OpenAPI document: requests that schemathesis makes from it find no failure and no undocumented answer."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.python.asgi import shutdown_lifespans
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.chance import SOAK, draw_seed
from tests.server.hostile.in_process import WORKFLOWS, app_of, bearer, client_of, config, leaving_streams

from perdure.server.http import app as http_app
from perdure.server.http.app import create_app

EXAMPLES = 100 if SOAK else 4
FAILURES = {502, 503, 504}
"""Statuses that the document lists: a failed workflow, an unavailable store, and a run that takes longer."""
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
ASKED = "asking"
KNOWN = {
    "thread_id": ["chat", ASKED, "failed"],
    "name": ["ask", "echo"],
    "message_id": ["m0", "m1"],
}
"""Ids that exist. Half of the requests use them."""


@pytest.fixture
def schema() -> Iterator[Any]:
    ending = {name: path for name, path in WORKFLOWS.items() if name != "waiting"}  # it would wait for an hour
    yield schemathesis.openapi.from_asgi("/openapi.json", leaving_streams(create_app(config(workflows=ending))))
    shutdown_lifespans()


@pytest.fixture
def ask(schema: Any) -> Any:
    """Returns a function that sends a request of the test itself."""

    def send(method: str, path: str, **body: Any) -> Any:
        with schemathesis.python.asgi.get_client(schema.app) as client:
            answer = client.request(method, f"http://testserver{path}", headers=bearer("eve"), **body)
        assert answer.status_code < 500 or answer.status_code in FAILURES, answer.text
        return answer

    return send


def prepare(ask: Any) -> dict[str, list[str]]:
    """Creates a thread of each kind, also after a request has removed it, and returns the known ids."""
    turn = {"messages": [{"role": "user", "content": "hello"}], "config": {"thread_id": "chat"}}
    ask("POST", "/v1/graph/invoke", json=turn)
    ask("POST", f"/v1/threads/{ASKED}/runs?wait=10", json={"input": "x", "workflow": "ask"})
    ask("POST", "/v1/threads/failed/runs?wait=10", json={"input": "x", "workflow": "failing"})
    known = {**KNOWN, "checkpoint_id": [], "run_id": []}
    for thread in KNOWN["thread_id"]:
        for checkpoint in ask("GET", f"/v1/threads/{thread}/checkpoints").json()["data"]["checkpoints"]:
            known["checkpoint_id"].append(checkpoint["checkpoint_id"])
            known["run_id"].append(checkpoint["run_id"])
    asked = ask("GET", "/v1/requests").json()["data"]["requests"]
    return {**known, "other": known["checkpoint_id"], "request_id": [request["request_id"] for request in asked]}


@pytest.mark.timeout(600 if SOAK else 60)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fitting", "unfitting"])
def test_requests_from_the_document_find_no_failure_or_undocumented_answer(
    schema: Any, ask: Any, mode: GenerationMode
) -> None:
    first = draw_seed()
    for number, result in enumerate(schema.get_all_operations()):
        operation = result.ok()
        if mode is GenerationMode.POSITIVE or operation.body or operation.query:  # any text fits into a path
            check_operation(operation, mode, prepare(ask), first + number)


def check_operation(operation: Any, mode: GenerationMode, known: dict[str, list[str]], its_seed: int) -> None:
    @seed(its_seed)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), st.booleans(), st.randoms(use_true_random=False))
    def check_case(case: Any, is_known: bool, chance: random.Random) -> None:
        if is_known:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = chance.choice(known.get(name) or ["nothing"])
        answer = case.call(headers=bearer("eve"))
        assert answer.status_code < 500 or answer.status_code in FAILURES, f"{case!r}: {answer.text}"
        case.validate_response(answer, checks=CHECKS)

    check_case()


async def test_document_request_does_not_change_the_logging_setup() -> None:
    def standing() -> tuple[int, list[logging.Handler]]:
        return logging.root.level, list(logging.root.handlers)

    http_app.openapi_document.cache_clear()
    before = standing()
    async with app_of() as app, client_of(app) as anybody:
        assert standing() == before
        assert (await anybody.get("/openapi.json")).status_code == 200
        assert (await anybody.get("/docs")).status_code == 200
        assert standing() == before
