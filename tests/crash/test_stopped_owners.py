"""A stopped process (SIGSTOP) whose thread was taken over: after it continues, the store rejects all its writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.crash.lives import prepared
from tests.crash.stopping import Stopping
from tests.crash.zygote import Zygote


@pytest.mark.parametrize("place", ["file", "sqlite", "postgres"])
@pytest.mark.parametrize("flow", ["chain", "fan-3", "function"])
def test_stopped_owner_that_continues_is_fenced_out(flow: str, place: str, zygote: Zygote, tmp_path: Path) -> None:
    endings = []
    for begins in (1, 2, 4):
        folder = prepared(place, tmp_path / str(begins))
        order = Stopping(place=place, folder=str(folder), flow=flow, begins=begins)
        zygote.life("tests.crash.stopping:live", order)
        endings.append(json.loads((folder / "ending").read_text(encoding="utf-8")))
    assert endings[0] == endings[1] == endings[2]
