"""`perdure.json`: which files are read, and errors that list all problems at once and never show a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.server.config.files import load_config
from perdure.server.config.schema import AuthConfig, AuthorizationConfig, InvalidConfig, RateLimitConfig, ServerConfig

AGENT = {"agent": "graph.react:app"}


def written(folder: Path, tree: Any, name: str = "perdure.json") -> Path:
    path = folder / name
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree), encoding="utf-8")
    return path


def load(folder: Path, tree: Any = None, **environ: str) -> ServerConfig:
    if tree is not None:
        written(folder, tree)
    return load_config(folder=folder, environ=environ)


def refused(folder: Path, tree: Any, **environ: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load(folder, tree, **environ)
    assert caught.value.code == "invalid_config"
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


# ---------------------------------------------------------------- files


def test_file_in_the_folder_is_loaded_and_sets_the_project_folder(tmp_path: Path) -> None:
    assert load(tmp_path, AGENT) == ServerConfig(agent="graph.react:app", folder=str(tmp_path))


def test_toml_file_is_loaded(tmp_path: Path) -> None:
    written(tmp_path, 'agent = "a:b"\nport = 9000\n[auth]\nmethod = "jwt"\n', "perdure.toml")
    config = load(tmp_path)
    assert (config.agent, config.port, config.auth.method) == ("a:b", 9000, "jwt")


def test_path_can_name_a_file_or_its_folder(tmp_path: Path) -> None:
    path = written(tmp_path, AGENT, "other.json")
    assert load_config(path, environ={}).folder == str(tmp_path)
    assert load_config(path, folder=tmp_path / "x", environ={}).folder == str(tmp_path / "x")
    written(tmp_path, {"agent": "a:b"})
    assert load_config(tmp_path, environ={}).agent == "a:b"


def test_json_and_toml_file_together_are_rejected(tmp_path: Path) -> None:
    written(tmp_path, 'agent = "a:b"', "perdure.toml")
    assert "perdure.json and perdure.toml are both in" in refused(tmp_path, AGENT)


def test_perdure_file_comes_before_agentflow_files(tmp_path: Path) -> None:
    for name in ("agentflow.json", ".agentflow.json", "agentflow.config.json"):
        written(tmp_path, {"agent": f"{name.strip('.').replace('.', '_')}:app"}, name)
    assert load(tmp_path).agent == "agentflow_json:app"
    assert load(tmp_path, AGENT).agent == "graph.react:app"


def test_missing_file_error_names_perdure_init(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="`perdure init` creates a project"):
        load(tmp_path)
    with pytest.raises(InvalidConfig, match=r"Folder .* does not exist"):
        load(tmp_path / "nowhere")


def test_environment_can_replace_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, PERDURE_AGENT="a:b").agent == "a:b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not valid JSON: Expecting property name"),
        ('{"agent": "a:b", "agent": "c:d"}', "it is not valid JSON: the key 'agent' occurs twice"),
        ('{"port": NaN}', "it is not valid JSON: NaN is not a JSON number"),
        ("[]", "expected an object"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_invalid_json_error_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    assert refused(tmp_path, text).startswith(f"perdure.json: {message}")


def test_file_that_is_not_utf8_not_toml_or_missing_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "perdure.json").write_bytes(b'{"agent": "\xff"}')
    with pytest.raises(InvalidConfig, match="it is not UTF-8: byte 11"):
        load(tmp_path)
    with pytest.raises(InvalidConfig, match="it is not valid TOML: Expected '='"):
        load_config(written(tmp_path, "agent", "x.toml"), environ={})
    with pytest.raises(InvalidConfig, match=r"the file does not exist \(did you mean 'perdure.json'\?\)"):
        load_config(tmp_path / "perdre.json", environ={})


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, AuthConfig()),
        ("none", AuthConfig()),
        ("jwt", AuthConfig(method="jwt")),
        ("api_key", AuthConfig(method="api_key")),
        ({"method": "custom", "path": "m:a"}, AuthConfig(method="custom", path="m:a")),
    ],
)
def test_auth_is_a_word_or_an_object(tmp_path: Path, value: Any, expected: AuthConfig) -> None:
    assert load(tmp_path, AGENT | {"auth": value}).auth == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, AuthorizationConfig()),
        ("ownership", AuthorizationConfig()),
        ("allow_all", AuthorizationConfig(backend="allow_all")),
        ("default", AuthorizationConfig(backend="allow_all")),
        ("none", AuthorizationConfig(backend="allow_all")),
        ("guards:decide", AuthorizationConfig(backend="custom", path="guards:decide")),
        (
            {"backend": "rbac", "roles": {"reader": ["graph:read"], "boss": ["*"]}, "isolation": "none"},
            AuthorizationConfig(backend="rbac", roles={"reader": ("graph:read",), "boss": ("*",)}, isolation="none"),
        ),
    ],
)
def test_authorization_is_a_word_an_object_or_the_path_of_an_object(
    tmp_path: Path, value: Any, expected: AuthorizationConfig
) -> None:
    assert load(tmp_path, AGENT | {"authorization": value}).authorization == expected


def test_a_rate_limit_is_null_or_an_object(tmp_path: Path) -> None:
    assert load(tmp_path, AGENT | {"rate_limit": None}).rate_limit is None
    assert load(tmp_path, AGENT | {"rate_limit": {}}).rate_limit == RateLimitConfig()
    assert "rate_limit: expected an object, got true." in refused(tmp_path, AGENT | {"rate_limit": True})


# ---------------------------------------------------------------- what is refused

ROLES = {"backend": "rbac", "roles": {"a": ["graph"]}}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"agnet": "a:b"}, "agnet: unknown key (did you mean 'agent'?)."),
        ({"auth": {"metod": "jwt"}}, "auth.metod: unknown key (did you mean 'method'?)."),
        ({"limits": {"max_run": 1}}, "limits.max_run: unknown key (did you mean 'max_runs'?)."),
        ({"folder": "."}, "folder: the project's folder is the folder of the file."),
        ({"auth": "jwtt"}, "or an object with `method`, got another text (did you mean 'jwt'?)."),
        ({"auth": {"method": "custom"}}, "auth.path: auth.method is 'custom', so a 'module:attribute' is needed here."),
        ({"auth": {"method": "jwt", "path": "a:b"}}, "auth.path: it has an effect only with auth.method 'custom'."),
        ({"auth": {"method": "custom", "path": "a"}}, "auth.path: expected a 'module:attribute'"),
        ({"auth": 3}, "auth: expected null, one of 'none', 'api_key', 'jwt', 'custom', or an object"),
        ({"authorization": "ownershp"}, "got 'ownershp' (did you mean 'ownership'?)."),
        ({"authorization": "rbac"}, "authorization.roles: authorization.backend is 'rbac', so roles or"),
        ({"authorization": {"default_scopes": ["*"]}}, "it has an effect only with authorization.backend 'rbac'."),
        ({"authorization": ROLES}, "authorization.roles.a[0]: expected a scope such as 'graph:invoke' or '*'"),
        ({"rate_limit": {"requests": 0}}, "rate_limit.requests: expected 1 or more, got 0."),
        ({"rate_limit": {"requests": "5"}}, "rate_limit.requests: expected a whole number, got '5'."),
        ({"rate_limit": {"window": 0}}, "rate_limit.window: expected a number of seconds, more than 0"),
        ({"rate_limit": {"backend": "redis"}}, "rate_limit.backend: it is 'redis', but `redis` is not set."),
        ({"rate_limit": {"by": "users"}}, "rate_limit.by: expected one of 'ip', 'user', 'global', got 'users' (did"),
        ({"rate_limit": {"trusted_proxies": ["10.0.0.300"]}}, "rate_limit.trusted_proxies[0]: expected an address"),
        ({"rate_limit": {"exclude_paths": ["ping"]}}, "rate_limit.exclude_paths[0]: expected a path that begins"),
        ({"cors": {"origins": ["https://a.b/c"]}}, "cors.origins[0]: expected an origin"),
        ({"cors": {"origins": ["a.b"]}}, "cors.origins[0]: expected an origin"),
        ({"cors": {"origins": ["*"], "allow_credentials": True}}, "cors.allow_credentials: with the origin '*'"),
        ({"cors": {"origins": "https://a.b"}}, "cors.origins: expected a list of texts"),
        ({"limits": {"max_runs": 0}}, "limits.max_runs: expected 1 or more, got 0."),
        ({"limits": {"max_waiting": -1}}, "limits.max_waiting: expected 0 or more, got -1."),
        ({"limits": {"max_runs": True}}, "limits.max_runs: expected a whole number, got true."),
        ({"limits": {"body_seconds": 0}}, "limits.body_seconds: expected a number of seconds, more than 0"),
        ({"port": 70000}, "port: expected a port from 1 to 65535"),
        ({"host": "http://x"}, "host: expected an address or a name of this machine"),
        ({"root_path": "x/"}, "root_path: expected a path such as '/agents'"),
        ({"mode": "prod"}, "mode: expected one of 'development', 'production', got 'prod'"),
        ({"agent": "graph/react.py:app"}, "Name a module, not a file: try 'graph.react:app'."),
        ({"agent": "graph.react.app"}, "Try 'graph.react:app'."),
        ({"agent": None}, "agent: no workflow is configured."),
        ({"workflows": {"a/b": "m:a"}}, "workflows.a/b: expected a name that is valid in a URL"),
        ({"workflows": {"a": 3}}, "workflows.a: expected a text, got 3."),
        ({"checkpointer": "sqlit:///x.db"}, "'sqlit' is not a storage scheme (did you mean 'sqlite'?)."),
        ({"checkpointer": "somewhere"}, "checkpointer: expected a 'module:attribute'"),
        ({"redis": "localhost"}, "redis: expected a URL such as 'redis://host:6379/0'"),
        ({"thread_name_generator": "x"}, "thread_name_generator: expected a 'module:attribute'"),
        ({"env": ".nope"}, "env: file"),
        ({"auth": {"secret_env": "not a name"}}, "auth.secret_env: expected the name of an environment variable"),
    ],
)
def test_error_names_the_invalid_key(tmp_path: Path, tree: Any, message: str) -> None:
    [line] = refused(tmp_path, AGENT | tree).splitlines()
    assert line.startswith("perdure.json: ")
    assert message in line


def test_error_lists_all_problems_at_once(tmp_path: Path) -> None:
    tree = {"agnet": "a:b", "port": 0.5, "auth": {"metod": 1}, "limits": {"max_runs": 0, "body_seconds": "x"}}
    places = [line.split(": ")[1] for line in refused(tmp_path, tree).splitlines()]
    assert sorted(places) == ["agent", "agnet", "auth.metod", "limits.body_seconds", "limits.max_runs", "port"]


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "tree",
    [
        {"checkpointer": f"postgreql://me:{SECRET}@db/x"},
        {"checkpointer": f"me:{SECRET}@db"},
        {"checkpointer": f"postgresql//me:{SECRET}@db/x"},
        {"redis": f"me:{SECRET}@host"},
        {"redis": SECRET},
        {"redis": [SECRET]},
        {"redis": f"http://:{SECRET}@host"},
        {"auth": SECRET},
        {"auth": {"secret": SECRET}},
        {"auth": {"secret_env": SECRET}},
        {"auth": {"secret_env": {"x": SECRET}}},
        {"agent": f"https://u:{SECRET}@x"},
        {"cors": {"origins": [f"https://u:{SECRET}@x"]}},
        {"thread_name_generator": "${PASSPHRASE}"},
        {"passwort": SECRET},
    ],
)
def test_error_shows_no_secret_of_the_file(tmp_path: Path, tree: Any) -> None:
    message = refused(tmp_path, AGENT | tree, PASSPHRASE=SECRET)
    assert SECRET not in message


def test_error_shows_no_secret_of_a_variable(tmp_path: Path) -> None:
    message = refused(tmp_path, AGENT, PERDURE_REDIS=f"me:{SECRET}@host", PERDURE_AUTH=SECRET)
    assert SECRET not in message
    assert {line.split(":")[0] for line in message.splitlines()} == {"PERDURE_REDIS", "PERDURE_AUTH"}
