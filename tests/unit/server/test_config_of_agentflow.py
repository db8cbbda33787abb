"""`agentflow.json`: each of its keys works, is ignored with a warning, or is rejected with an alternative."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.server.config.files import LoadedConfig, read_config
from perdure.server.config.schema import InvalidConfig, ServerConfig

AGENT = {"agent": "graph.react:app"}
PROXIES = {"trusted_proxies": ["10.0.0.0/8"]}


def read(folder: Path, tree: Any) -> LoadedConfig:
    (folder / "agentflow.json").write_text(json.dumps(AGENT | tree), encoding="utf-8")
    return read_config(folder=folder, environ={})


@pytest.mark.parametrize(
    ("tree", "read_as"),
    [
        ({"agent": "a:b"}, {"agent": "a:b"}),
        ({"checkpointer": "m:a"}, {"checkpointer": "m:a"}),
        ({"redis": "redis://h:1/0"}, {"redis": "redis://h:1/0"}),
        ({"thread_name_generator": "m:a"}, {"thread_name_generator": "m:a"}),
        ({"thread_name_generator": None}, {}),
        ({"auth": None}, {}),
        ({"auth": "jwt"}, {"auth": {"method": "jwt"}}),
        ({"auth": {"method": "custom", "path": "m:a"}}, {"auth": {"method": "custom", "path": "m:a"}}),
        ({"authorization": None}, {}),
        ({"authorization": "ownership"}, {}),
        ({"authorization": "none"}, {"authorization": {"backend": "allow_all"}}),
        ({"authorization": "m:a"}, {"authorization": {"backend": "custom", "path": "m:a"}}),
        (
            {"authorization": {"backend": "rbac", "roles": {"r": ["*"]}, "default_scopes": [], "isolation": "owner"}},
            {"authorization": {"backend": "rbac", "roles": {"r": ("*",)}}},
        ),
        ({"rate_limit": None}, {}),
        ({"rate_limit": {"enabled": False}}, {"rate_limit": {"enabled": False}}),
        ({"rate_limit": {"backend": "memory", "requests": 5}}, {"rate_limit": {"requests": 5}}),
        ({"rate_limit": {"window": 5, "by": "user"}}, {"rate_limit": {"window": 5.0, "by": "user"}}),
        ({"rate_limit": {"exclude_paths": ["/x"]}}, {"rate_limit": {"exclude_paths": ("/x",)}}),
        ({"rate_limit": {"fail_open": False}}, {"rate_limit": {"fail_open": False}}),
        ({"rate_limit": {"trusted_proxy_headers": False, "trusted_proxy_hops": 1}}, {"rate_limit": {}}),
        (
            {"rate_limit": {"trusted_proxy_headers": True, **PROXIES}},
            {"rate_limit": {"trusted_proxies": ("10.0.0.0/8",)}},
        ),
        (
            {"rate_limit": {"backend": "redis", "redis": {"url": "redis://h", "prefix": "p"}}},
            {"redis": "redis://h", "rate_limit": {"backend": "redis", "prefix": "p"}},
        ),
        ({"websocket": {"max_connections": 7}}, {"limits": {"max_streams": 7}}),
        ({"websocket": {"max_connections_per_user": 0, "realtime_models": []}}, {}),
        ({"ag_ui": {"enabled": False, "allow_client_tools": True}}, {}),
        ({"observability": {"logfire": {"enabled": False}, "langsmith": {"enabled": False}}}, {}),
        ({"store": None, "injectq": None, "remote_tools": []}, {}),
        ({"port": 9000, "limits": {"max_runs": 3}}, {"port": 9000, "limits": {"max_runs": 3}}),
    ],
)
def test_supported_keys_are_read_as_perdure_keys(tmp_path: Path, tree: Any, read_as: Any) -> None:
    config, _, warnings = read(tmp_path, tree)
    assert config == msgspec.convert(AGENT | read_as | {"folder": str(tmp_path)}, ServerConfig)
    assert warnings == []


def test_file_of_variables_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PLACE=m:a")
    assert read(tmp_path, {"env": ".env", "checkpointer": "${PLACE}"}).config.checkpointer == "m:a"


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ({"test": {"path": "tests", "coverage": True, "coverage_threshold": 80}}, "test"),
        ({"evaluation": {"directory": "evals", "threshold": 0.8}}, "evaluation"),
        ({"observability": {"level": "full"}}, "observability.level"),
        ({"rate_limit": PROXIES}, "rate_limit.trusted_proxies"),
    ],
)
def test_ignored_keys_are_named_in_a_warning(tmp_path: Path, tree: Any, named: str) -> None:
    [warning] = read(tmp_path, tree).warnings
    assert warning.startswith(f"agentflow.json: {named} is ignored")


@pytest.mark.parametrize(
    ("tree", "place", "instead"),
    [
        ({"store": "m:a"}, "store", "Open the store in the module of your agent"),
        ({"injectq": "m:a"}, "injectq", "as arguments"),
        ({"remote_tools": [{"name": "x"}]}, "remote_tools", "a request with"),
        ({"ag_ui": {"enabled": True}}, "ag_ui.enabled", "GET /v1/threads/{id}/events"),
        (
            {"observability": {"logfire": {"enabled": True}}},
            "observability.logfire.enabled",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
        (
            {"observability": {"langsmith": {"enabled": True}}},
            "observability.langsmith.enabled",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
        ({"websocket": {"max_connections_per_user": 10}}, "websocket.max_connections_per_user", "by 'user'"),
        ({"websocket": {"realtime_models": ["x"]}}, "websocket.realtime_models", "Remove the key"),
        ({"websocket": {"max_connections": 0}}, "websocket.max_connections", "expected 1 or more"),
        ({"websocket": {"max_conections": 1}}, "websocket.max_conections", "did you mean 'max_connections'?"),
        ({"rate_limit": {"backend": "custom"}}, "rate_limit.backend", "Use 'memory', or 'redis'"),
        ({"rate_limit": {"trusted_proxy_headers": True}}, "rate_limit.trusted_proxy_headers", "trusted_proxies"),
        ({"rate_limit": {"trusted_proxy_hops": 2}}, "rate_limit.trusted_proxy_hops", "Name all of them"),
        ({"rate_limit": {"request": 2}}, "rate_limit.request", "did you mean 'requests'?"),
        (
            {"redis": "redis://a", "rate_limit": {"redis": {"url": "redis://b"}}},
            "rate_limit.redis.url",
            "the server uses one URL",
        ),
        ({"rate_limit": 3}, "rate_limit", "expected an object"),
        ({"checkpoiner": "m:a"}, "checkpoiner", "did you mean 'checkpointer'?"),
    ],
)
def test_error_of_a_rejected_key_names_an_alternative(tmp_path: Path, tree: Any, place: str, instead: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(tmp_path, tree)
    [problem] = caught.value.problems
    assert (problem.source, problem.place) == ("agentflow.json", place)
    assert instead in problem.sentence
