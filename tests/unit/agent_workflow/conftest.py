"""Stores that executions are kept in, in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.agent_workflow.interrupted import PLACES, Place


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    store = Place(request.param, tmp_path)
    yield store
    await store.close()
