"""A user's own way to tell who sends a request: a function, or an object with `authenticate`."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from perdure.log import get_logger
from perdure.server.auth.principal import AuthUnavailable, Credentials, NotAuthenticated, Principal, is_user_id
from perdure.server.config.errors import invalid

logger = get_logger(__name__)

LONGEST_SECONDS = 10.0
REFUSED = "These credentials are not accepted."
_OWN_KEYS = frozenset({"user_id", "roles", "scopes"})


class CustomAuthenticator:
    """Asks `authenticate` of the object at `path`. What it raises is told to nobody but the log, and there without its
    text, which may hold credentials."""

    def __init__(self, found: object, path: str) -> None:
        self._path = path
        found_or_made: Any = made(found, "authenticate", "auth.path")
        self._authenticate: Callable[..., Any] = getattr(found_or_made, "authenticate", found_or_made)
        self._arguments = _arguments_for(self._authenticate, path)

    async def authenticate(self, credentials: Credentials) -> Principal:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                answer = await called(self._authenticate, *self._arguments(credentials))
        except NotAuthenticated:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a user's code does
            if getattr(error, "status_code", None) in (401, 403):  # how web frameworks say no
                raise NotAuthenticated(REFUSED) from None
            logger.error("%s failed: %s at %s", self._path, type(error).__name__, place_of(error))
            raise AuthUnavailable from None
        return self._principal(answer)

    def _principal(self, answer: object) -> Principal:
        if answer is None:
            raise NotAuthenticated(REFUSED)
        try:
            return principal_of(answer)
        except ValueError as problem:
            logger.error("%s gave what names nobody: %s", self._path, problem)
            raise AuthUnavailable from None


def principal_of(answer: object) -> Principal:
    """Raises ValueError, with a sentence that shows no value."""
    user_id: object
    roles: object
    scopes: object
    claims: Mapping[str, Any]
    if isinstance(answer, Principal):
        user_id, roles, scopes, claims = answer.user_id, answer.roles, answer.scopes, answer.claims
    elif isinstance(answer, Mapping):
        user_id, roles, scopes = answer.get("user_id"), answer.get("roles"), answer.get("scopes")
        claims = {str(key): value for key, value in answer.items() if key not in _OWN_KEYS}
    else:
        raise ValueError(f"expected a Principal, a dict with user_id, or None, got a {type(answer).__name__}")
    if type(user_id) is int:
        user_id = str(user_id)  # a row's number
    if not is_user_id(user_id):
        raise ValueError("user_id must be a text of 1 to 255 characters")
    return Principal(user_id, texts(roles, "roles") or (), scopes_of(scopes), claims)


def scopes_of(value: object) -> frozenset[str] | None:
    """Of a list, or of a text with spaces between them, as OAuth writes it; None: not narrowed. Raises ValueError."""
    found = texts(value.split() if isinstance(value, str) else value, "scopes")
    return None if found is None else frozenset(found)


def texts(value: object, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list of texts")
    found = tuple(value)
    if not all(isinstance(one, str) for one in found):
        raise ValueError(f"{name} must be a list of texts")
    return found


# ---------------------------------------------------------------- calling users' code


def made(found: Any, method: str, where: str) -> Any:
    """The object itself, or one of its class where a class with this method is named. Raises InvalidConfig."""
    if not (inspect.isclass(found) and hasattr(found, method)):
        return found
    try:
        return found()
    except Exception as error:
        raise invalid(
            where,
            f"this is the class {found.__name__}, and making one without arguments failed: {type(error).__name__}. "
            "Name an object that is made already.",
        ) from error


async def called(function: Callable[..., Any], *arguments: object) -> Any:
    """Awaited if it is async; otherwise in a thread: it may ask a database, and nobody else is to wait for that."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  # whether calling it makes a coroutine
        return await function(*arguments)
    answer = await asyncio.to_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer


def place_of(error: BaseException) -> str:
    places = traceback.extract_tb(error.__traceback__)
    return f"{places[-1].filename}:{places[-1].lineno}" if places else "an unknown place"


def _arguments_for(function: object, path: str) -> Callable[[Credentials], tuple[object, ...]]:
    """What it is called with: the credentials, or (request, response, credential) as AgentFlow's BaseAuth. Raises
    InvalidConfig."""
    expected = "`authenticate(credentials)`, or `authenticate(request, response, credential)` as in AgentFlow"
    if not callable(function):
        raise invalid("auth.path", f"{path!r} is a {type(function).__name__}: expected a function or {expected}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise invalid("auth.path", f"the parameters of {path!r} cannot be read; expected {expected}.") from None
    is_named_so = list(signature.parameters)[:2] == ["request", "response"]  # else defaults would hide what it is
    for arguments in (_as_in_agentflow,) if is_named_so else (_alone, _as_in_agentflow):
        try:
            signature.bind(*arguments(Credentials(headers={})))
        except TypeError:
            continue
        return arguments
    raise invalid("auth.path", f"{path!r} takes {signature}: expected {expected}.")


def _alone(given: Credentials) -> tuple[object]:
    return (given,)


def _as_in_agentflow(given: Credentials) -> tuple[object, object, object]:
    """Small objects with what such code looks at. What it puts into the response is not sent."""
    request = SimpleNamespace(
        headers=_Headers(given.headers),
        method=given.method,
        url=SimpleNamespace(path=given.path),
        client=None if given.client is None else SimpleNamespace(host=given.client),
        state=SimpleNamespace(),
    )
    credential = None if given.token is None else SimpleNamespace(scheme="Bearer", credentials=given.token)
    return request, SimpleNamespace(headers={}, status_code=200), credential


class _Headers(dict[str, str]):
    """Found by any spelling of their names."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)
