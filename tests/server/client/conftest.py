"""A server that the tests of the client share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from tests.server.client import flows
from tests.server.serving import Server, project


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = project(tmp_path_factory.mktemp("client") / "demo")
    shutil.copy(flows.__file__, folder / "flows.py")
    config = {"agent": "flows:parade", "workflows": {"asking": "flows:asking"}, "checkpointer": "sqlite:threads.db"}
    (folder / "perdure.json").write_text(json.dumps(config), encoding="utf-8")
    with Server(folder) as started:
        yield started


@pytest.fixture(autouse=True)
def _no_proxy_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx would ask the proxy of the caller's shell."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
