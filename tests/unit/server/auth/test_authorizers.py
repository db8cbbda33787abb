"""All kinds of authorization, scopes that narrow them, and invalid configurations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from perdure.server.auth import custom
from perdure.server.auth.principal import ANYBODY, GRANTABLE, SCOPES, Authorizer, Principal, covers
from perdure.server.config.schema import AuthorizationConfig, InvalidConfig, ServerConfig
from perdure.server.factory import make_authorizer

ADA = Principal("ada")


def authorizer(policy: Any = None, **config: Any) -> Authorizer:
    return make_authorizer(ServerConfig(authorization=AuthorizationConfig(**config)), lambda path: policy)


async def allowed(who: Authorizer, principal: Principal) -> set[str]:
    return {scope for scope in SCOPES if await who.may(principal, scope, "t-1")}


def scoped(user: str, scopes: Iterable[str], *roles: str) -> Principal:
    return Principal(user, roles, frozenset(scopes))


def test_scope_is_covered_by_itself_by_its_kind_and_by_all() -> None:
    assert covers(["graph:read"], "graph:read") and not covers(["graph:read"], "graph:stop")
    assert covers(["graph:*"], "graph:stop") and not covers(["graph:*"], "checkpointer:read")
    assert all(covers(["*"], scope) for scope in SCOPES)
    assert not covers([], "graph:read") and not covers(["graph"], "graph:read") and not covers(["*:read"], "graph:read")
    assert set(GRANTABLE) - set(SCOPES) == {"*", "graph:*", "checkpointer:*", "requests:*", "metrics:*"}


async def test_ownership_allows_all_scopes_and_isolates_owners() -> None:
    who = authorizer()
    assert who.isolates_owners
    assert await allowed(who, ADA) == await allowed(who, ANYBODY) == set(SCOPES)


async def test_allow_all_allows_all_scopes_and_does_not_isolate_owners() -> None:
    who = authorizer(backend="allow_all")
    assert not who.isolates_owners
    assert await allowed(who, ADA) == set(SCOPES)


@pytest.mark.parametrize("config", [{}, {"backend": "allow_all"}, {"backend": "rbac", "default_scopes": ("*",)}])
async def test_scopes_of_a_key_or_token_narrow_those_of_its_user(config: dict[str, Any]) -> None:
    who = authorizer(**config)
    assert await allowed(who, scoped("ada", ["graph:read", "requests:*"])) == {
        *("graph:read", "requests:read", "requests:answer")
    }
    assert await allowed(who, scoped("ada", [])) == set()
    assert await allowed(who, scoped("ada", ["openid", "email"])) == set()


ROLES: dict[str, tuple[str, ...]] = {
    "admin": ("*",),
    "operator": ("graph:*", "requests:answer"),
    "auditor": ("checkpointer:read",),
    "nothing": (),
}


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        (Principal("a", ("admin",)), set(SCOPES)),
        (Principal("o", ("operator",)), {*(s for s in SCOPES if s.startswith("graph:")), "requests:answer"}),
        (Principal("x", ("auditor", "unknown")), {"checkpointer:read"}),
        (Principal("b", ("auditor", "nothing")), {"checkpointer:read"}),
        (Principal("n", ("nothing",)), set()),
        (Principal("u", ("unknown",)), {"metrics:read"}),
        (Principal("d"), {"metrics:read"}),
        (ANYBODY, {"metrics:read"}),
        (scoped("s", ["checkpointer:*", "graph:read"], "operator"), {"graph:read"}),
        (scoped("t", ["*"], "auditor"), {"checkpointer:read"}),
    ],
    ids=lambda value: value.user_id if isinstance(value, Principal) else "",
)
async def test_roles_combine_their_scopes_and_unknown_roles_get_the_default(
    principal: Principal, expected: set[str]
) -> None:
    who = authorizer(backend="rbac", roles=ROLES, default_scopes=("metrics:read",))
    assert await allowed(who, principal) == expected


def test_isolation_with_roles_is_configurable() -> None:
    assert authorizer(backend="rbac", roles=ROLES).isolates_owners
    assert not authorizer(backend="rbac", roles=ROLES, isolation="none").isolates_owners
    assert authorizer(lambda u, r, a, i: True, backend="custom", path="a:b").isolates_owners
    assert not authorizer(lambda u, r, a, i: True, backend="custom", path="a:b", isolation="none").isolates_owners


# ---------------------------------------------------------------- a user's own


class Backend:
    """As AgentFlow's AuthorizationBackend."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def authorize(self, user: dict[str, Any], resource: str, action: str, resource_id: str | None) -> bool:
        self.asked.append((user, resource, action, resource_id))
        return action == "read"


async def test_custom_backend_gets_user_resource_action_and_id() -> None:
    backend = Backend()
    who = authorizer(backend, backend="custom", path="app:policy")
    ada = Principal("ada", ("operator",), frozenset({"graph:*"}), {"team": "red", "user_id": "root"})
    assert await allowed(who, ada) == {"graph:read"}
    user = {"user_id": "ada", "roles": ["operator"], "scopes": ["graph:*"], "team": "red"}
    assert backend.asked[0] == (user, "graph", "invoke", "t-1")
    assert all(resource == "graph" for _, resource, _, _ in backend.asked)  # what the key leaves out is not asked


async def test_custom_backend_can_be_a_function_or_a_class() -> None:
    for policy in (lambda user, resource, action, resource_id: resource_id == "t-1", Backend):
        assert await authorizer(policy, backend="custom", path="a:b").may(ADA, "graph:read", "t-1")


@pytest.mark.parametrize("verdict", [None, 1, "yes", [True], {}], ids=repr)
async def test_custom_verdict_that_is_not_a_bool_denies_and_is_logged(
    verdict: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert not await authorizer(lambda *_: verdict, backend="custom", path="app:policy").may(ADA, "graph:read", None)
    assert "app:policy returned a" in caplog.text


async def test_custom_backend_that_fails_or_hangs_denies(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> bool:
        raise RuntimeError("s3cret")

    async def hang(*_: Any) -> bool:
        await asyncio.Event().wait()
        return True

    assert not await authorizer(fail, backend="custom", path="app:policy").may(ADA, "graph:read", None)
    monkeypatch.setattr(custom, "LONGEST_SECONDS", 0.01)
    assert not await authorizer(hang, backend="custom", path="app:policy").may(ADA, "graph:read", None)
    assert "app:policy failed: RuntimeError at " in caplog.text and "TimeoutError" in caplog.text
    assert "s3cret" not in caplog.text


# ---------------------------------------------------------------- refused at the start


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            {"backend": "rbac", "roles": {"dev": ("graph:invok",)}},
            r"authorization.roles.dev: no scope 'graph:invok' exists \(did you mean 'graph:invoke'\?\)",
        ),
        ({"backend": "rbac", "default_scopes": ("store:read",)}, "authorization.default_scopes: no scope"),
        ({"backend": "rbac", "default_scopes": ("public",)}, "no scope 'public' exists"),
        ({"backend": "rbac"}, "authorization.roles: authorization.backend is 'rbac', so roles or default_scopes are"),
        ({"isolation": "none"}, "authorization.isolation: it is 'none', but the backend 'ownership'"),
        ({"roles": {"dev": ("*",)}}, "authorization.roles: it has an effect only with authorization.backend 'rbac'"),
        (
            {"backend": "allow_all", "default_scopes": ("*",)},
            "authorization.default_scopes: it has an effect only with",
        ),
        (
            {"backend": "custom"},
            "authorization.path: authorization.backend is 'custom', so a 'module:attribute' is needed",
        ),
    ],
)
def test_invalid_configuration_is_rejected(config: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        authorizer(**config)


class Misspelt:
    def authorise(self) -> None: ...


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (7, "'app:policy' is a int, which has no method `authorize"),
        (Misspelt(), r"did you mean 'authorise'\?"),
        (lambda user: True, "must take"),
    ],
)
def test_object_without_a_usable_authorize_is_rejected(policy: Any, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        authorizer(policy, backend="custom", path="app:policy")
