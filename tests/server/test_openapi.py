"""The OpenAPI document: requests that schemathesis makes from it find no failure, and nothing that it does not say."""

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
"""Of which a client is told: those of the workflow, of the storage, and that it takes longer."""
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
ASKED = "asking"
KNOWN = {
    "thread_id": ["chat", ASKED, "failed"],
    "name": ["ask", "echo"],
    "message_id": ["m0", "m1"],
}
"""Ids that stand for something; half of the requests have them."""


@pytest.fixture
def schema() -> Iterator[Any]:
    ending = {name: path for name, path in WORKFLOWS.items() if name != "waiting"}  # nobody waits for an hour
    yield schemathesis.openapi.from_asgi("/openapi.json", leaving_streams(create_app(config(workflows=ending))))
    shutdown_lifespans()


@pytest.fixture
def ask(schema: Any) -> Any:
    """Sends a request of this test's own."""

    def send(method: str, path: str, **body: Any) -> Any:
        with schemathesis.python.asgi.get_client(schema.app) as client:
            answer = client.request(method, f"http://testserver{path}", headers=bearer("eve"), **body)
        assert answer.status_code < 500 or answer.status_code in FAILURES, answer.text
        return answer

    return send


def prepare(ask: Any) -> dict[str, list[str]]:
    """Threads of each kind, made anew if a request has removed them; and the ids that there are."""
    turn = {"messages": [{"role": "user", "content": "hello"}], "config": {"thread_id": "chat"}}
    ask("POST", "/v1/graph/invoke", json=turn)
    ask("POST", f"/v1/threads/{ASKED}/runs?wait=10", json={"input": "x", "workflow": "ask"})
    ask("POST", "/v1/threads/failed/runs?wait=10", json={"input": "x", "workflow": "failing"})
    known = {**KNOWN, "checkpoint_id": [], "run_id": []}
    for thread in KNOWN["thread_id"]:
        for one in ask("GET", f"/v1/threads/{thread}/checkpoints").json()["data"]["checkpoints"]:
            known["checkpoint_id"].append(one["checkpoint_id"])
            known["run_id"].append(one["run_id"])
    asked = ask("GET", "/v1/requests").json()["data"]["requests"]
    return {**known, "other": known["checkpoint_id"], "request_id": [one["request_id"] for one in asked]}


@pytest.mark.timeout(600 if SOAK else 20)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fitting", "unfitting"])
def test_no_request_made_from_the_document_finds_a_failure_or_an_answer_that_it_does_not_say(
    schema: Any, ask: Any, mode: GenerationMode
) -> None:
    first = draw_seed()
    for number, found in enumerate(schema.get_all_operations()):
        operation = found.ok()
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
    def one(case: Any, is_known: bool, chance: random.Random) -> None:
        if is_known:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = chance.choice(known.get(name) or ["nothing"])
        answer = case.call(headers=bearer("eve"))
        assert answer.status_code < 500 or answer.status_code in FAILURES, f"{case!r}: {answer.text}"
        case.validate_response(answer, checks=CHECKS)

    one()


async def test_asking_for_the_document_leaves_logging_as_it_was() -> None:
    def standing() -> tuple[int, list[logging.Handler]]:
        return logging.root.level, list(logging.root.handlers)

    http_app.openapi_document.cache_clear()
    before = standing()
    async with app_of() as app, client_of(app) as anybody:
        assert standing() == before
        assert (await anybody.get("/openapi.json")).status_code == 200
        assert (await anybody.get("/docs")).status_code == 200
        assert standing() == before
