"""Custom authentication: the accepted shapes, the answers, and the handling of failures."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import Any

import pytest
from tests.unit.server.auth.credentials import refusal, with_token

from perdure.server.auth import custom
from perdure.server.auth.custom import REJECTED, CustomAuthenticator
from perdure.server.auth.principal import AuthUnavailable, Credentials, NotAuthenticated, Principal
from perdure.server.config.schema import InvalidConfig

CREDENTIALS = Credentials(
    headers={"authorization": "Bearer s3cret-token", "x-team": "red"},
    token="s3cret-token",
    method="POST",
    path="/v1/graph/invoke",
    client="10.0.0.7",
)
ADA = Principal("ada", ("operator",), frozenset({"graph:*"}), {"team": "red"})
ADA_AS_DICT = {"user_id": "ada", "roles": ["operator"], "scopes": ["graph:*"], "team": "red"}


def answering(answer: Any) -> CustomAuthenticator:
    return CustomAuthenticator(lambda credentials: answer, "app:who")


def shown(value: object) -> str:
    """Returns the `repr` without addresses, so that it is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class Object:
    def authenticate(self, credentials: Credentials) -> Any:
        assert credentials is CREDENTIALS
        return ADA_AS_DICT


class AsyncObject:
    async def authenticate(self, credentials: Credentials) -> Any:
        assert credentials is CREDENTIALS
        return ADA


class Callable:
    async def __call__(self, credentials: Credentials) -> Any:
        assert credentials is CREDENTIALS
        return ADA_AS_DICT


async def function(credentials: Credentials) -> Any:
    assert credentials is CREDENTIALS
    return ADA


@pytest.mark.parametrize("target", [Object, Object(), AsyncObject, AsyncObject(), Callable(), function], ids=shown)
async def test_authenticator_can_be_a_function_an_object_or_a_class(target: object) -> None:
    assert await CustomAuthenticator(target, "app:who").authenticate(CREDENTIALS) == ADA


async def test_sync_function_does_not_block_the_event_loop() -> None:
    entered, may_go = threading.Event(), threading.Event()

    def slow(credentials: Credentials) -> Any:
        entered.set()
        assert may_go.wait(10)
        return ADA

    asked = asyncio.create_task(CustomAuthenticator(slow, "app:who").authenticate(CREDENTIALS))
    assert await asyncio.to_thread(entered.wait, 10)
    may_go.set()  # reached while it is still inside
    assert await asked == ADA


async def test_number_is_a_valid_user_id() -> None:
    assert (await answering({"user_id": 42}).authenticate(CREDENTIALS)).user_id == "42"


async def test_answer_none_rejects_the_request() -> None:
    assert await refusal(answering(None), CREDENTIALS) == REJECTED


async def test_message_of_not_authenticated_reaches_the_caller() -> None:
    def refuse(credentials: Credentials) -> Any:
        raise NotAuthenticated("Your trial has ended.")

    assert await refusal(CustomAuthenticator(refuse, "app:who"), CREDENTIALS) == "Your trial has ended."


@pytest.mark.parametrize("status", [401, 403])
async def test_http_exception_with_401_or_403_rejects_the_request(status: int) -> None:
    class HTTPException(Exception):
        status_code = status

    def refuse(credentials: Credentials) -> Any:
        raise HTTPException(CREDENTIALS.token)

    assert await refusal(CustomAuthenticator(refuse, "app:who"), CREDENTIALS) == REJECTED


async def test_failure_raises_auth_unavailable_and_is_logged_without_credentials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(credentials: Credentials) -> Any:
        raise RuntimeError(f"cannot check {credentials.token}")

    with pytest.raises(AuthUnavailable) as raised:
        await CustomAuthenticator(fail, "app:who").authenticate(CREDENTIALS)
    assert "app:who failed: RuntimeError at " in caplog.text and "test_custom.py" in caplog.text
    assert "s3cret" not in caplog.text and "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__


async def test_authenticator_that_hangs_times_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(custom, "LONGEST_SECONDS", 0.01)

    async def hang(credentials: Credentials) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(AuthUnavailable):
        await CustomAuthenticator(hang, "app:who").authenticate(CREDENTIALS)
    assert "TimeoutError" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        *(True, "ada", 1, [], {}, {"user": "ada"}, {"user_id": None}, {"user_id": ""}, {"user_id": "a\nb"}),
        *({"user_id": True}, {"user_id": "ada", "roles": "admin"}, {"user_id": "ada", "roles": [1]}),
        *({"user_id": "ada", "scopes": 7}, {"user_id": "ada", "scopes": {"a": 1}}, Principal(), Principal("")),
    ],
    ids=shown,
)
async def test_answer_without_a_valid_user_raises_auth_unavailable(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AuthUnavailable):
        await answering(answer).authenticate(CREDENTIALS)
    assert "app:who returned no user id" in caplog.text


# ---------------------------------------------------------------- as in AgentFlow


class AsInAgentFlow:
    def authenticate(self, request: Any, response: Any, credential: Any) -> dict[str, Any] | None:
        response.headers["WWW-Authenticate"] = "Bearer"
        if credential is None:
            return None
        assert (credential.scheme, credential.credentials) == ("Bearer", "s3cret-token")
        assert request.headers["Authorization"] == request.headers.get("authorization") == "Bearer s3cret-token"
        assert "X-Team" in request.headers and request.headers.get("X-None") is None
        assert (request.method, request.url.path, request.client.host) == ("POST", "/v1/graph/invoke", "10.0.0.7")
        return ADA_AS_DICT


class WithDefaults:
    async def authenticate(self, request: Any, response: Any = None, credential: Any = None) -> Any:
        return ADA if credential is not None and request.method == "POST" else None


@pytest.mark.parametrize(
    "target", [AsInAgentFlow(), AsInAgentFlow, WithDefaults()], ids=["object", "class", "defaults"]
)
async def test_agentflow_authenticator_is_recognized_by_its_parameters(target: object) -> None:
    known = CustomAuthenticator(target, "app:who")
    assert await known.authenticate(CREDENTIALS) == ADA
    assert await refusal(known, Credentials(headers={})) == REJECTED


# ---------------------------------------------------------------- refused at the start


class NeedsArguments:
    def __init__(self, url: str) -> None: ...
    def authenticate(self, credentials: Credentials) -> Any: ...


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (7, "'app:who' is a int: expected a function or `authenticate"),
        (lambda: None, r"'app:who' takes \(\): expected"),
        (lambda first, second: None, r"takes \(first, second\): expected"),
        (NeedsArguments, "instance of the class NeedsArguments without arguments failed"),
    ],
)
def test_unusable_authenticator_is_rejected_at_the_start(target: object, why: str) -> None:
    with pytest.raises(InvalidConfig, match=f"auth.path: .*{why}"):
        CustomAuthenticator(target, "app:who")


async def test_credentials_are_not_logged_at_any_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await answering(ADA).authenticate(with_token("s3cret-token"))
    assert "s3cret" not in caplog.text
