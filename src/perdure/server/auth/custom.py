"""Custom authentication and authorization: a user's functions or objects, and how they are called."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from perdure.errors import did_you_mean
from perdure.graph.executor import is_async
from perdure.log import get_logger
from perdure.server.auth.principal import (
    AuthUnavailable,
    Credentials,
    NotAuthenticated,
    Principal,
    is_narrowed,
    is_user_id,
)
from perdure.server.config.schema import invalid

logger = get_logger(__name__)

LONGEST_SECONDS = 10.0
REJECTED = "These credentials are not accepted."
_OWN_KEYS = frozenset({"user_id", "roles", "scopes"})


class CustomAuthenticator:
    """Calls `authenticate` of the object at `path`. Its errors are logged without their text, which may hold
    credentials."""

    def __init__(self, target: object, path: str) -> None:
        self._path = path
        instance: Any = instantiate(target, "authenticate", "auth.path")
        self._authenticate: Callable[..., Any] = getattr(instance, "authenticate", instance)
        self._arguments = _arguments_for(self._authenticate, path)

    async def authenticate(self, credentials: Credentials) -> Principal:
        try:
            answer = await call_user_code(self._authenticate, *self._arguments(credentials))
        except NotAuthenticated:
            raise
        except Exception as error:  # noqa: BLE001  # user code raises anything
            if getattr(error, "status_code", None) in (401, 403):  # how web frameworks reject
                raise NotAuthenticated(REJECTED) from None
            logger.error("%s failed: %s at %s", self._path, type(error).__name__, place_of(error))
            raise AuthUnavailable from None
        if answer is None:
            raise NotAuthenticated(REJECTED)
        try:
            return principal_of(answer)
        except ValueError as problem:
            logger.error("%s returned no user id: %s", self._path, problem)
            raise AuthUnavailable from None


def principal_of(answer: object) -> Principal:
    """The answer as a Principal. Raises ValueError with a message that contains no value."""
    fields = msgspec.structs.asdict(answer) if isinstance(answer, Principal) else answer
    if not isinstance(fields, Mapping):
        raise ValueError(f"expected a Principal, a dict with user_id, or None, got a {type(answer).__name__}")
    user_id = fields.get("user_id")
    if type(user_id) is int:
        user_id = str(user_id)  # a database id
    if not is_user_id(user_id):
        raise ValueError("user_id must be a text of 1 to 255 characters")
    claims: Mapping[str, Any] = {str(key): value for key, value in fields.items() if key not in _OWN_KEYS}
    claims = answer.claims if isinstance(answer, Principal) else claims
    return Principal(user_id, read_texts(fields.get("roles"), "roles") or (), scopes_of(fields.get("scopes")), claims)


def scopes_of(value: object) -> frozenset[str] | None:
    """Scopes from a list, or from a text with spaces as in OAuth; None: no limits. Raises ValueError."""
    scopes = read_texts(value.split() if isinstance(value, str) else value, "scopes")
    return None if scopes is None else frozenset(scopes)


def read_texts(value: object, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list of texts")
    values = tuple(value)
    if not all(isinstance(item, str) for item in values):
        raise ValueError(f"{name} must be a list of texts")
    return values


# ---------------------------------------------------------------- authorization


class CustomAuthorizer:
    """Calls a user's `authorize(user, resource, action, resource_id)`. Only True grants the scope."""

    def __init__(self, target: Any, path: str, *, isolates_owners: bool) -> None:
        """`target`: the function, or an object or class with such a method. Raises InvalidConfig."""
        self.isolates_owners = isolates_owners
        self._authorize = _find_authorize(target, path)
        self._path = path

    async def may(self, principal: Principal, scope: str, thread_id: str | None) -> bool:
        if is_narrowed(principal, scope):
            return False
        resource, _, action = scope.partition(":")
        user = {**principal.claims, "user_id": principal.user_id, "roles": list(principal.roles)}
        if principal.scopes is not None:
            user["scopes"] = sorted(principal.scopes)
        try:
            verdict = await call_user_code(self._authorize, user, resource, action, thread_id)
        except Exception as error:  # noqa: BLE001  # user code raises anything: refuse
            logger.error("%s failed: %s at %s. Refused", self._path, type(error).__name__, place_of(error))
            return False
        if not isinstance(verdict, bool):
            logger.error("%s returned a %s, not True or False. Refused", self._path, type(verdict).__name__)
            return False
        return verdict


def _find_authorize(target: Any, path: str) -> Any:
    """The function of the object at `path`, or its method `authorize`. Raises InvalidConfig."""
    target = instantiate(target, "authorize", "authorization.path")
    authorize: Any = getattr(target, "authorize", target)
    if not callable(authorize):
        names = [name for name in dir(target) if not name.startswith("_")]
        raise invalid(
            "authorization.path",
            f"{path!r} is a {type(target).__name__}, which has no method `authorize(user, resource, action, "
            f"resource_id)`{did_you_mean('authorize', names)} and is not a function.",
        )
    try:
        inspect.signature(authorize).bind({}, "graph", "invoke", None)
    except (TypeError, ValueError) as error:
        sentence = f"{path!r} must take (user, resource, action, resource_id): {error}."
        raise invalid("authorization.path", sentence) from None
    return authorize


# ---------------------------------------------------------------- user code


def instantiate(target: Any, method: str, where: str) -> Any:
    """The object itself, or an instance if it is a class with this method. Raises InvalidConfig."""
    if not (inspect.isclass(target) and hasattr(target, method)):
        return target
    try:
        return target()
    except Exception as error:
        raise invalid(
            where,
            f"creating an instance of the class {target.__name__} without arguments failed: {type(error).__name__}. "
            "Name an existing object instead.",
        ) from error


async def call_user_code(function: Callable[..., Any], *arguments: object) -> Any:
    """Await an async function; call any other in a thread, because it may block. Raises TimeoutError."""
    async with asyncio.timeout(LONGEST_SECONDS):
        answer = function(*arguments) if is_async(function) else await asyncio.to_thread(function, *arguments)
        return await answer if inspect.isawaitable(answer) else answer


def place_of(error: BaseException) -> str:
    places = traceback.extract_tb(error.__traceback__)
    return f"{places[-1].filename}:{places[-1].lineno}" if places else "an unknown place"


def _arguments_for(function: object, path: str) -> Callable[[Credentials], tuple[object, ...]]:
    """The arguments to call it with: the credentials, or AgentFlow's (request, response, credential).

    Raises InvalidConfig.
    """
    expected = "`authenticate(credentials)`, or `authenticate(request, response, credential)` as in AgentFlow"
    if not callable(function):
        raise invalid("auth.path", f"{path!r} is a {type(function).__name__}: expected a function or {expected}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise invalid("auth.path", f"the parameters of {path!r} cannot be read; expected {expected}.") from None
    is_named_so = list(signature.parameters)[:2] == ["request", "response"]  # defaults could hide AgentFlow's signature
    for arguments in (
        (_agentflow_arguments,) if is_named_so else (lambda credentials: (credentials,), _agentflow_arguments)
    ):
        try:
            signature.bind(*arguments(Credentials(headers={})))
        except TypeError:
            continue
        return arguments
    raise invalid("auth.path", f"{path!r} takes {signature}: expected {expected}.")


def _agentflow_arguments(credentials: Credentials) -> tuple[object, object, object]:
    """Minimal objects with the attributes that such code reads. Changes of the response are not sent."""
    request = SimpleNamespace(
        headers=_Headers(credentials.headers),
        method=credentials.method,
        url=SimpleNamespace(path=credentials.path),
        client=None if credentials.client is None else SimpleNamespace(host=credentials.client),
        state=SimpleNamespace(),
    )
    credential = None if credentials.token is None else SimpleNamespace(scheme="Bearer", credentials=credentials.token)
    return request, SimpleNamespace(headers={}, status_code=200), credential


class _Headers(dict[str, str]):
    """Case-insensitive headers."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)
