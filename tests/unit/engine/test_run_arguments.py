"""Arguments of a run: for all executors or one, kept for its resumes, secrets kept out of checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.engine.flows import alone, function

from perdure import (
    InMemoryCheckpointStorage,
    InvalidRun,
    MissingSecret,
    Secret,
    UnknownExecutor,
    Workflow,
    WorkflowBuilder,
    WorkflowInvocationKwargs,
)


def reporting(**options: Any) -> Workflow:
    """`one` and then `two` yield their id and both kinds of arguments."""

    async def report(message: str, ctx: Any) -> None:
        await ctx.yield_output((ctx.executor_id, dict(ctx.function_invocation_kwargs), dict(ctx.client_kwargs)))
        if ctx.executor_id == "one":
            await ctx.send_message(message)

    first, second = function("one", report), function("two", report)

    return WorkflowBuilder(name="telling", start_executor=first, **options).add_edge(first, second).build()


async def test_arguments_without_an_executors_id_reach_all_executors() -> None:
    result = await reporting().run("x", function_invocation_kwargs={"user": "ann"}, client_kwargs={"model": "m"})
    assert result.get_outputs() == [("one", {"user": "ann"}, {"model": "m"}), ("two", {"user": "ann"}, {"model": "m"})]


async def test_arguments_by_executor_reach_only_that_one() -> None:
    result = await reporting().run("x", function_invocation_kwargs={"two": {"user": "ann"}})
    assert result.get_outputs() == [("one", {}, {}), ("two", {"user": "ann"}, {})]


async def test_arguments_by_executor_must_hold_mappings() -> None:
    workflow = reporting()
    with pytest.raises(InvalidRun, match=r"client_kwargs is given by executor.*'two' must hold a mapping, got int"):
        await workflow.run("x", client_kwargs={"one": {"a": 1}, "two": 5})
    with pytest.raises(UnknownExecutor, match=r"client_kwargs, given by executor, names the executor 'tow'.*'two'"):
        await workflow.run("x", client_kwargs={"one": {"a": 1}, "tow": {}})
    assert len((await workflow.run("x")).get_outputs()) == 2


async def test_arguments_of_one_executor_override_those_of_all() -> None:
    both = WorkflowInvocationKwargs({"user": "ann", "role": "cook"}, {"two": {"user": "bo"}})
    result = await reporting().run("x", function_invocation_kwargs=both)
    ann, bo = {"user": "ann", "role": "cook"}, {"user": "bo", "role": "cook"}
    assert result.get_outputs() == [("one", ann, {}), ("two", bo, {})]
    with pytest.raises(UnknownExecutor, match="names the executor 'tow'"):
        await reporting().run("x", client_kwargs=WorkflowInvocationKwargs({}, {"tow": {}}))


async def test_arguments_must_be_a_mapping() -> None:
    wrong: Any = [("user", "ann")]
    with pytest.raises(InvalidRun, match="client_kwargs must be a mapping, got list"):
        await reporting().run("x", client_kwargs=wrong)


async def test_a_new_message_starts_without_the_arguments_of_the_last() -> None:
    workflow = reporting()
    await workflow.run("x", client_kwargs={"model": "m"})
    assert (await workflow.run("x")).get_outputs() == [("one", {}, {}), ("two", {}, {})]


async def test_resume_in_a_new_object_keeps_arguments_unless_new_ones_are_passed() -> None:
    storage = InMemoryCheckpointStorage()
    await reporting(checkpoint_storage=storage).run("x", client_kwargs={"model": "m"})
    entry, *_ = await storage.list_checkpoint_ids()
    kept = await reporting(checkpoint_storage=storage).run(checkpoint_id=entry)
    assert kept.get_outputs() == [("one", {}, {"model": "m"}), ("two", {}, {"model": "m"})]
    replaced = await reporting(checkpoint_storage=storage).run(checkpoint_id=entry, client_kwargs={"model": "n"})
    assert replaced.get_outputs() == [("one", {}, {"model": "n"}), ("two", {}, {"model": "n"})]


async def test_a_handler_gets_the_value_of_a_secret() -> None:
    result = await reporting().run("x", client_kwargs={"key": Secret("hunter2"), "model": "m"})
    assert result.get_outputs()[0] == ("one", {}, {"key": "hunter2", "model": "m"})


async def test_no_checkpoint_and_no_event_holds_a_secret() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = alone(lambda message, ctx: ctx.yield_output(len(ctx.client_kwargs["key"])), checkpoint_storage=storage)
    await workflow.run("x", thread_id="t", client_kwargs={"only": {"key": Secret("hunter2")}})
    checkpoints = await storage.list_checkpoints()
    assert "hunter2" not in json.dumps([checkpoint.to_dict() for checkpoint in checkpoints])
    assert b"hunter2" not in b"".join(logged.body for logged in await storage.store.events_after("t", 0))


async def test_run_resumed_without_its_secret_names_the_secret_to_pass_again() -> None:
    storage = InMemoryCheckpointStorage()
    await reporting(checkpoint_storage=storage).run("x", client_kwargs={"key": Secret("hunter2")})
    entry, *_ = await storage.list_checkpoint_ids()
    with pytest.raises(MissingSecret, match=r"'key' was marked secret, so it is in no checkpoint.*Pass it again"):
        await reporting(checkpoint_storage=storage).run(checkpoint_id=entry)
    again = await reporting(checkpoint_storage=storage).run(checkpoint_id=entry, client_kwargs={"key": Secret("other")})
    assert again.get_outputs()[0] == ("one", {}, {"key": "other"})


@pytest.mark.parametrize(
    ("arguments", "opened"),
    [
        ({"auth": {"key": Secret("k")}}, {"auth": {"key": "k"}}),
        ({"keys": [Secret("k"), "plain"]}, {"keys": ["k", "plain"]}),
        ({"all": [{"key": Secret("k")}]}, {"all": [{"key": "k"}]}),
        ({"only": {"auth": {"key": Secret("k")}}}, {"auth": {"key": "k"}}),
    ],
)
async def test_secret_is_opened_at_any_depth_of_the_arguments(
    arguments: dict[str, Any], opened: dict[str, Any]
) -> None:
    storage = InMemoryCheckpointStorage()
    seen: list[Any] = []
    workflow = alone(lambda message, ctx: seen.append(dict(ctx.client_kwargs)), checkpoint_storage=storage)
    await workflow.run("x", client_kwargs=arguments)
    assert seen == [opened]
    assert '"k"' not in json.dumps(
        [checkpoint.to_dict()["run_kwargs"] for checkpoint in await storage.list_checkpoints()]
    )


async def add_and_fail_at_first(message: str, ctx: Any) -> None:
    words = ctx.client_kwargs["list"]
    words.append(message)
    if not ctx.function_invocation_kwargs:
        raise ValueError("as asked")
    await ctx.yield_output(words)


async def test_change_of_an_argument_by_a_failed_handler_is_discarded() -> None:
    workflow = alone(add_and_fail_at_first)
    with pytest.raises(ValueError, match="as asked"):
        await workflow.run("x", client_kwargs={"list": []})
    assert (await workflow.run(function_invocation_kwargs={"good": True})).get_outputs() == [["x"]]


async def test_the_callers_own_arguments_are_not_changed() -> None:
    mine: dict[str, Any] = {"list": []}
    await alone(add_and_fail_at_first).run("x", client_kwargs=mine, function_invocation_kwargs={"good": True})
    assert mine == {"list": []}


def test_a_secret_does_not_show_itself() -> None:
    assert repr({"key": Secret("hunter2")}) == "{'key': Secret(...)}"


async def test_arguments_show_no_secret_when_they_are_printed() -> None:
    workflow = alone(lambda message, ctx: ctx.yield_output(repr(ctx.client_kwargs)))
    (shown,) = (await workflow.run("x", client_kwargs={"key": Secret("hunter2")})).get_outputs()
    assert "hunter2" not in shown
