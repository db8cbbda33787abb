"""Variables that set keys, `${NAME}` in values, and files of variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.server.config.files import list_variables, load_config, read_config, read_variables
from perdure.server.config.schema import InvalidConfig

AGENT = {"agent": "a:b"}


def load(folder: Path, tree: Any, **environ: str) -> Any:
    (folder / "perdure.json").write_text(json.dumps(AGENT | tree), encoding="utf-8")
    return load_config(folder=folder, environ=environ)


VALUES: dict[str, tuple[str, Any]] = {
    "PERDURE_AGENT": ("m:a", "m:a"),
    "PERDURE_WORKFLOWS": ('{"x": "m:a"}', {"x": "m:a"}),
    "PERDURE_CHECKPOINTER": ("sqlite:///x.db", "sqlite:///x.db"),
    "PERDURE_ENV": ("variables", "variables"),
    "PERDURE_AUTH": ("jwt", {"method": "jwt"}),
    "PERDURE_AUTH__METHOD": ("api_key", "api_key"),
    "PERDURE_AUTHORIZATION": ("none", {"backend": "allow_all"}),
    "PERDURE_AUTHORIZATION__BACKEND": ("allow_all", "allow_all"),
    "PERDURE_RATE_LIMIT": ('{"requests": 3}', {"requests": 3}),
    "PERDURE_RATE_LIMIT__BY": ("user", "user"),
    "PERDURE_RATE_LIMIT__ENABLED": ("false", False),
    "PERDURE_RATE_LIMIT__TRUSTED_PROXIES": ('["10.0.0.1"]', ["10.0.0.1"]),
    "PERDURE_RATE_LIMIT__EXCLUDE_PATHS": ('["/x"]', ["/x"]),
    "PERDURE_RATE_LIMIT__FAIL_OPEN": ("false", False),
    "PERDURE_REDIS": ("redis://h", "redis://h"),
    "PERDURE_THREAD_NAME_GENERATOR": ("m:a", "m:a"),
    "PERDURE_CORS": ('{"origins": ["http://x"]}', {"origins": ["http://x"]}),
    "PERDURE_CORS__ORIGINS": ('["http://x"]', ["http://x"]),
    "PERDURE_CORS__ALLOW_CREDENTIALS": ("true", True),
    "PERDURE_LIMITS": ('{"max_runs": 3}', {"max_runs": 3}),
    "PERDURE_AUTH__ALGORITHM": ("HS512", "HS512"),
    "PERDURE_AUTH__SECRET_ENV": ("NAME", "NAME"),
    "PERDURE_MODE": ("production", "production"),
    "PERDURE_HOST": ("localhost", "localhost"),
    "PERDURE_ROOT_PATH": ("/x", "/x"),
}
ONLY_WITH = {
    "PERDURE_AUTH__PATH": {"PERDURE_AUTH__METHOD": "custom"},
    "PERDURE_AUTHORIZATION__PATH": {"PERDURE_AUTHORIZATION__BACKEND": "custom"},
    "PERDURE_AUTHORIZATION__ROLES": {"PERDURE_AUTHORIZATION__BACKEND": "rbac"},
    "PERDURE_AUTHORIZATION__DEFAULT_SCOPES": {"PERDURE_AUTHORIZATION__BACKEND": "rbac"},
    "PERDURE_AUTHORIZATION__ISOLATION": {
        "PERDURE_AUTHORIZATION__BACKEND": "rbac",
        "PERDURE_AUTHORIZATION__DEFAULT_SCOPES": '["*"]',
    },
    "PERDURE_RATE_LIMIT__BACKEND": {"PERDURE_REDIS": "redis://h"},
}
MORE_VALUES: dict[str, tuple[str, Any]] = {
    "PERDURE_AUTHORIZATION__ROLES": ('{"r": ["*"]}', {"r": ["*"]}),
    "PERDURE_AUTHORIZATION__DEFAULT_SCOPES": ('["*"]', ["*"]),
    "PERDURE_AUTHORIZATION__ISOLATION": ("none", "none"),
    "PERDURE_RATE_LIMIT__BACKEND": ("redis", "redis"),
}


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, path, _ in list_variables()])
def test_every_key_can_be_set_by_a_variable(tmp_path: Path, name: str, path: tuple[str, ...]) -> None:
    (tmp_path / "variables").write_text("")
    hint = next(hint for variable, _, hint in list_variables() if variable == name)
    is_text = str in (hint, *getattr(hint, "__args__", ()))
    text, value = (VALUES | MORE_VALUES).get(name, ("m:a", "m:a") if is_text else ("7", 7))
    config = load(tmp_path, {}, **ONLY_WITH.get(name, {}), **{name: text})
    setting: Any = msgspec.to_builtins(config)
    for key in path:
        setting = setting[key]
    assert json.loads(json.dumps(setting)) == value


def test_variable_overrides_the_file_and_keeps_its_other_keys(tmp_path: Path) -> None:
    tree = {"rate_limit": {"requests": 100, "window": 9}, "auth": "jwt"}
    config = load(tmp_path, tree, PERDURE_RATE_LIMIT__REQUESTS="5", PERDURE_AUTH__ISSUER="us")
    assert (config.rate_limit.requests, config.rate_limit.window) == (5, 9)
    assert (config.auth.method, config.auth.issuer) == ("jwt", "us")


def test_null_removes_a_key_and_an_empty_variable_is_ignored(tmp_path: Path) -> None:
    tree = {"rate_limit": {}, "redis": "redis://h"}
    config = load(tmp_path, tree, PERDURE_RATE_LIMIT="null", PERDURE_REDIS="")
    assert (config.rate_limit, config.redis) == (None, "redis://h")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("PERDURE_PORT", "abc", "PERDURE_PORT: expected a whole number, got 'abc'."),
        ("PERDURE_PORT", "70000", "PERDURE_PORT: expected a port"),
        ("PERDURE_CORS__ORIGINS", "x", 'expected a list of texts as JSON, such as ["a", "b"], got \'x\'.'),
        ("PERDURE_WORKFLOWS", "x", 'expected an object as JSON, such as {"name": "value"}'),
        ("PERDURE_RATE_LIMIT", '{"requests": 0}', "PERDURE_RATE_LIMIT: rate_limit.requests: expected 1 or more"),
        ("PERDURE_AUTH__METHOD", "jwtt", "PERDURE_AUTH__METHOD: expected one of"),
    ],
)
def test_error_names_the_invalid_variable(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(tmp_path, {}, **{name: text})
    assert message in str(caught.value)
    assert "perdure.json" not in str(caught.value)


def test_warning_names_an_unknown_variable_but_not_those_of_other_parts(tmp_path: Path) -> None:
    (tmp_path / "perdure.json").write_text(json.dumps(AGENT))
    others = {"PERDURE_LOG": "info", "PERDURE_KEYS": "k", "PERDURE_STORE": "x", "PERDURE_REDIS_URL": "y"}
    environ = {"PERDURE_RATELIMIT": "3", "PERDURE_TEST_POSTGRES_URL": "z", "OTHER": "1", **others}
    assert read_config(folder=tmp_path, environ=environ).warnings == [
        "The environment variable PERDURE_RATELIMIT sets no key of the server (did you mean 'PERDURE_RATE_LIMIT'?)."
    ]


# ---------------------------------------------------------------- ${NAME}


def test_names_in_values_are_replaced_and_can_be_escaped(tmp_path: Path) -> None:
    tree = {"redis": "redis://:${PW}@${HOST}/0", "cors": {"origins": ["http://${HOST}"]}, "auth": {"issuer": "$${PW}"}}
    config = load(tmp_path, tree, PW="p$w", HOST="h")
    assert config.redis == "redis://:p$w@h/0"
    assert config.cors.origins == ("http://h",)
    assert config.auth.issuer == "${PW}"


def test_error_of_an_unset_name_names_its_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(tmp_path, {"redis": "redis://${REDIS_HOST}", "checkpointer": "${bad-name}"}, REDIS_HOSTS="h")
    message = str(caught.value)
    assert "redis: the environment variable REDIS_HOST is not set (did you mean 'REDIS_HOSTS'?)." in message
    assert "checkpointer: '${bad-name}' is not an environment variable" in message


# ---------------------------------------------------------------- files of variables


def test_file_of_variables_is_read_in_shell_syntax(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "\ufeff# a comment\n\nA=1\nexport B = two words # and a comment\nC='single $x # no comment'\n"
        'D="a\\nb \\"c\\"" # comment\nE=\nF=x#y\nG=a=b\n',
        encoding="utf-8",
    )
    assert read_variables(tmp_path / ".env") == {
        "A": "1",
        "B": "two words",
        "C": "single $x # no comment",
        "D": 'a\nb "c"',
        "E": "",
        "F": "x#y",
        "G": "a=b",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\nhunter2\n", "line 2 is not of the form NAME=value"),
        ("A='hunter2\n", "line 1, A: the quotation mark is not closed in this line"),
        ('A="hunter2" more\n', "line 1, A: the quotation mark is not closed"),
    ],
)
def test_error_has_the_number_of_an_unreadable_line_and_not_its_text(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / ".env").write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load(tmp_path, {"env": ".env"})
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_file_of_variables_adds_only_unset_variables_to_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEPT=file\nADDED=file\nPERDURE_PORT=9001\n")
    (tmp_path / "perdure.json").write_text(json.dumps(AGENT | {"env": ".env", "redis": "redis://${ADDED}/${KEPT}"}))
    environ = {"KEPT": "before"}
    config = load_config(folder=tmp_path, environ=environ)
    assert environ == {"KEPT": "before", "ADDED": "file", "PERDURE_PORT": "9001"}
    assert (config.port, config.redis) == (9001, "redis://file/before")


def test_rejected_configuration_does_not_change_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ADDED=file\n")
    (tmp_path / "perdure.json").write_text(json.dumps({"env": ".env"}))
    environ: dict[str, str] = {}
    with pytest.raises(InvalidConfig):
        load_config(folder=tmp_path, environ=environ)
    assert environ == {}
