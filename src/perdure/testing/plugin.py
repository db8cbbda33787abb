"""Fixtures for pytest: installed with perdure, and made only for tests that ask for them.

A fixture of the same name in a test module or conftest.py takes the place of the one here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import testing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.storages import InMemoryCheckpointStorage

# pytest loads this module in every project that has perdure installed, so the rest is loaded when it is needed.


@pytest.fixture
def fake_clock() -> testing.FakeClock:
    """A clock that moves only when the test moves it: WorkflowBuilder(clock=fake_clock)."""
    return testing.FakeClock()


@pytest.fixture
def memory_storage() -> InMemoryCheckpointStorage:
    """An empty storage in memory: WorkflowBuilder(checkpoint_storage=memory_storage)."""
    from perdure.storages import InMemoryCheckpointStorage

    return InMemoryCheckpointStorage()


@pytest.fixture
def faults() -> Iterator[testing.Faults]:
    """Fault points: faults.fail("commit", nth=2), and faults.wrap(memory_storage)."""
    made = testing.Faults()
    yield made
    made.resume_all()  # a test that failed in the middle must not keep its event loop from ending


@pytest.fixture
def event_recorder() -> testing.EventRecorder:
    """Collects a stream's events: await event_recorder.collect(workflow.run("hi", stream=True))."""
    return testing.EventRecorder()
