"""A Valkey that cannot be reached: everything works, nothing waits for it, one line says so, and no secret is in it."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.databases.valkey import ValkeyServer
from tests.turns import turns
from tests.valkey.acts import talking
from tests.valkey.others import SECONDS
from tests.valkey.places import Place

from perdure import MissingExtra
from perdure.store import Store
from perdure.stores.memory.store import MemoryStore
from perdure.stores.valkey.store import TIMEOUT_SECONDS, AcceleratedStore, Valkey
from perdure.testing.conformance.threads import own
from perdure.valkey_client import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, CircuitBreaker

SECRET = "hunter2-%2Fsecret"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Lets everybody in and never says a word, as a host behind a broken network does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


async def all_sent(store: Store) -> None:
    """Or given up."""
    assert isinstance(store, AcceleratedStore)
    async with asyncio.timeout(SECONDS):
        while store._valkey._connections().publisher._task is not None:
            await turns(1)


def urls_of(silent_port: int, own_valkey: ValkeyServer) -> dict[str, str]:
    return {
        "nobody there": f"redis://user:{SECRET}@127.0.0.1:1/0",
        "no such host": f"redis://user:{SECRET}@no-such-host.invalid:6379/0",
        "nobody answers": f"redis://user:{SECRET}@127.0.0.1:{silent_port}/0",
        "wrong password": f"redis://:{SECRET}@127.0.0.1:{own_valkey.port}/0",
        "unknown option": f"redis://:{SECRET}@127.0.0.1:1/0?unknown_option=1",
    }


@pytest.mark.parametrize("truth", ["sqlite"], indirect=True)
@pytest.mark.parametrize("why", ["nobody there", "no such host", "nobody answers", "wrong password", "unknown option"])
async def test_runs_succeed_with_one_warning_when_valkey_is_unreachable(
    why: str, truth: Place, silent_port: int, own_valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = urls_of(silent_port, own_valkey)[why]
    async with truth.beside(url).storage() as storage:
        workflow = talking(storage)
        for turn in range(3):
            result = await workflow.run(4, thread_id=f"t{turn}")
            assert result.get_outputs() == ["said all"]
            assert await storage.get_latest(thread_id=f"t{turn}") is not None
            await all_sent(storage.store)
        followed = [event async for event in storage.follow("t0", until_idle=True)]
        assert followed[-1].state == "IDLE"
    warned = [
        record for record in caplog.records if record.name.startswith("perdure") and record.levelno >= logging.WARNING
    ]
    assert len(warned) == 1 and "nothing is lost" in warned[0].getMessage(), [record.getMessage() for record in warned]
    assert "hunter2" not in caplog.text and "secret" not in caplog.text


def at_once(work: Coroutine[Any, Any, None]) -> None:
    """It comes to its end without waiting for anything."""
    with pytest.raises(StopIteration):
        work.send(None)


@pytest.mark.parametrize("harm", ["none", "paused", "nobody answers"])
async def test_a_commit_does_not_wait_for_valkey_whether_it_answers_or_not(
    harm: str, own_valkey: ValkeyServer, silent_port: int
) -> None:
    url = f"redis://127.0.0.1:{silent_port}" if harm == "nobody answers" else own_valkey.url
    store = AcceleratedStore(MemoryStore(), Valkey(url), "place")  # in memory nothing waits
    owner = await own(store)
    await owner.save()
    if harm == "paused":
        await all_sent(store)
        own_valkey.pause()
    for number in range(300):
        at_once(owner.write(owner.checkpoint()))
        at_once(store.post("t", f"item {number}", "message", b"1"))
        store.publish("t", b'"token"')
        await turns(2)
    await all_sent(store)
    assert store._valkey._breaker.is_open is (harm != "none")
    at_once(owner.release())
    await store.close()


async def test_publish_from_an_os_thread_without_an_event_loop_is_received_here(valkey_url: str) -> None:
    store = AcceleratedStore(MemoryStore(), Valkey(valkey_url), "place")
    async with store.subscribe("t") as subscription:
        await asyncio.to_thread(store.publish, "t", b'"told"')
        assert await asyncio.to_thread(store.has_subscribers, "t") and not await asyncio.to_thread(
            store.has_subscribers, "u"
        )
        while (message := await subscription.next(SECONDS)) is None:
            pass
        assert message == b'"told"'
    await store.close()


async def test_reading_waits_only_once_for_a_valkey_that_does_not_reply(silent_port: int) -> None:
    valkey = Valkey(f"redis://127.0.0.1:{silent_port}")
    began = time.monotonic()
    assert [await valkey.get(b"k") for _ in range(50)] == [None] * 50
    assert time.monotonic() - began < 25 * TIMEOUT_SECONDS  # 50 waits would take twice that
    await valkey.close()


def test_failed_server_is_left_alone_ever_longer_and_then_tried_by_one() -> None:
    breaker, waits = CircuitBreaker("somewhere", "It is slower."), list[float]()
    assert breaker.may_try() and not breaker.seconds_left()
    for _ in range(8):
        breaker.failed(OSError())
        assert not breaker.may_try()
        waits.append(breaker.seconds_left())
    expected = [min(FIRST_PAUSE_SECONDS * 2**number, LONGEST_PAUSE_SECONDS) for number in range(8)]
    assert waits == pytest.approx(expected, abs=0.1)
    breaker._until = 0  # the time is over
    assert breaker.may_try() and not breaker.may_try(), "one tries, the others go on without"
    breaker.succeeded()
    assert breaker.may_try() and breaker.may_try() and not breaker.is_open


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@host",
        f"redis://user:{SECRET}@host:port",
        f"redis://:hunter2#{SECRET}@host:6379",
        f"{SECRET}",
        f"redis://host:6379/{SECRET}",
        "",
        None,
        5,
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: Any) -> None:
    with pytest.raises(ValueError, match=r"expected redis://") as refused:
        Valkey(url)
    assert refused.value.__cause__ is None and refused.value.__suppress_context__
    assert "hunter2" not in str(refused.value)


def test_the_repr_of_a_connection_holds_no_password() -> None:
    assert repr(Valkey(f"valkey://user:{SECRET}@example.com:7000/2")) == "Valkey('example.com:7000')"
    assert repr(Valkey("unix:///run/valkey.sock")) == "Valkey('/run/valkey.sock')"


def test_perdure_imports_without_the_extra_and_valkey_names_it(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["redis"] = None
import perdure
from perdure.stores.valkey.store import Valkey
try:
    Valkey("redis://localhost")
except perdure.MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "perdure[redis]" in done.stdout and not done.stderr
    assert issubclass(MissingExtra, ImportError)
