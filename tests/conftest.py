"""What every test gets: explored examples that can be repeated, and a clean event loop when it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import tempfile
import warnings
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.chance import SEED, SOAK
from tests.databases.fixtures import postgres_dsn, postgres_place, postgres_server, valkey_server, valkey_url
from tests.over_postgres import choose
from tests.schemas import SCHEMAS

__all__ = ["SOAK", "postgres_dsn", "postgres_place", "postgres_server", "valkey_server", "valkey_url"]

MEMORY = "/dev/shm"


def _use_memory_for_temporary_files() -> None:
    """Tests write and delete some 30,000 files: on a disk that takes longer than all else they do to them."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
        filesystem = os.statvfs(MEMORY)
        if filesystem.f_bavail * filesystem.f_frsize > 2**31 and not filesystem.f_flag & os.ST_NOEXEC:
            os.environ["TMPDIR"] = tempfile.tempdir = MEMORY  # a plugin may have asked already


_use_memory_for_temporary_files()  # here and not in a hook: processes that are started later inherit it

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; tests interrupt what they start
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a busy machine is not a bug, and each test has its 20 seconds.
settings.register_profile(
    "default",
    max_examples=30,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A soak draws new examples; a failure prints a blob, and `@reproduce_failure` repeats it.
settings.register_profile(
    "soak",
    parent=settings.get_profile("default"),
    max_examples=int(os.environ.get("PERDURE_SOAK_EXAMPLES", "5000")),
    derandomize=False,
)
settings.load_profile("soak" if SOAK else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not SOAK:
        items[:], left_out = choose(items)
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: all objects stay. It took a third of the time in a new clone."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Freeze all objects that exist now: garbage collections, which many tests run, then skip them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _schemas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The server is started by the first test that needs it."""
    SCHEMAS.begin(lambda: request.getfixturevalue("postgres_server"), tmp_path_factory.getbasetemp())
    yield
    SCHEMAS.end()


@pytest.fixture(autouse=True)
def _schemas_are_given_back() -> Iterator[None]:
    with SCHEMAS.lent():
        yield


@pytest.fixture(autouse=True)
def _no_settings_of_the_callers_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERDURE_LOG", "PERDURE_KEYS", "PERDURE_REDIS_URL", "PERDURE_TRACING"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _chance_is_the_same_in_every_run() -> None:
    """Of jitter and of whatever else draws from the module's own generator."""
    random.seed(SEED)


@pytest.fixture(autouse=True)
def _no_coroutine_is_left_unawaited() -> Iterator[None]:
    """A forgotten `await` fails the test that forgot it, not whichever is running when memory is swept."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=r"coroutine .* was never awaited", category=RuntimeWarning)
        yield
        gc.collect(0)  # coroutines die by reference count; this finds young cycles, in under a millisecond
    forgotten = [str(warning.message) for warning in caught if "never awaited" in str(warning.message)]
    assert not forgotten, f"never awaited: {forgotten}"


@pytest.fixture(autouse=True)
def _a_test_with_an_event_loop_leaves_no_task(request: pytest.FixtureRequest) -> None:
    """Half of the tests have none, and making one takes longer than many of them."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("_no_task_is_left_running")


@pytest.fixture
async def _no_task_is_left_running() -> AsyncIterator[None]:
    """Whatever a test starts has ended, or was cancelled and awaited, when the test ends."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)  # a task that was cancelled or has just returned needs one turn to end
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    assert not left, f"still running when the test ended: {left}"
