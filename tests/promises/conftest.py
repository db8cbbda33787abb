"""Each promise is tried on every storage that can keep it, and resumed by the same object and by a new one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.stages import Again, with_a_new_object, with_the_same_object
from tests.six_methods import SixMethods

from holdfast import InMemoryCheckpointStorage
from holdfast.checkpoints.storage import StoreCheckpointStorage


@pytest.fixture(params=["memory"])
def storage(request: pytest.FixtureRequest) -> StoreCheckpointStorage:
    """A storage over a driver, empty: it has fences, a journal and an event log. New drivers join the list."""
    return {"memory": InMemoryCheckpointStorage}[request.param]()


@pytest.fixture(params=["memory", "six methods"])
def any_storage(request: pytest.FixtureRequest) -> Any:
    """Also one of which only the six methods are known."""
    return {"memory": InMemoryCheckpointStorage, "six methods": SixMethods}[request.param]()


@pytest.fixture(params=[with_the_same_object, with_a_new_object], ids=["same object", "new object"])
def again(request: pytest.FixtureRequest) -> Again:
    """How to go on after an interruption: with the workflow that was interrupted, or as another process would."""
    chosen: Again = request.param
    return chosen
