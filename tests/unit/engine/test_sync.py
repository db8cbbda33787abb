"""`run_sync`: the way in for scripts."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.engine.flows import Weather, crossing, shouting

from perdure import NotInAsyncCode, run_sync


def test_a_script_gets_the_result_without_a_loop_of_its_own() -> None:
    assert run_sync(shouting().run("hi")).get_outputs() == ["<HI>"]


def test_a_stream_can_be_run_to_its_end_too() -> None:
    assert run_sync(shouting().run("hi", stream=True)).get_outputs() == ["<HI>"]


def test_a_workflow_can_be_run_again_and_keeps_its_thread() -> None:
    workflow = shouting()
    first, second = run_sync(workflow.run("a")), run_sync(workflow.run("b"))
    assert first.thread_id == second.thread_id and second.get_outputs() == ["<B>"]


def test_run_sync_raises_the_error_of_the_run() -> None:
    with pytest.raises(ConnectionError):
        run_sync(crossing(Weather()).run("cart"))


async def test_run_sync_in_a_running_loop_suggests_await_and_runs_nothing() -> None:
    weather = Weather(is_bad=False)
    workflow = crossing(weather)
    with pytest.raises(NotInAsyncCode, match=r"Use `await` instead: result = await workflow.run") as raised:
        run_sync(workflow.run("cart"))
    assert isinstance(raised.value, RuntimeError)
    await asyncio.sleep(0)
    assert weather.seen == []
    assert (await workflow.run("cart")).get_outputs() == ["cart"]
