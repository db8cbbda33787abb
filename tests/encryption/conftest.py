"""Every place that outlives a process, in turn, empty."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.encryption.places import Place
from tests.schemas import where

from perdure.codecs.aes_gcm import VARIABLE

KINDS = ("sqlite", "file", "postgres")


@pytest.fixture(autouse=True)
def _no_keys_of_the_callers_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: str = request.param
    folder = tmp_path / "kept"
    folder.mkdir()
    if kind == "sqlite":
        return Place(kind, f"sqlite:///{folder / 'threads.db'}", folder)
    if kind == "file":
        return Place(kind, f"file:{folder / 'threads'}", folder)
    dsn, schema = where(folder)
    return Place(kind, f"{dsn}&schema={schema}", folder, dsn, schema)
