"""Policies as values: what RetryPolicy computes, and which values are rejected before anything runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.engine.policy_flows import Boom, Flaky, failing, relay, sink, worker

from perdure import (
    Executor,
    GraphConnectivityError,
    RetryPolicy,
    TypeCompatibilityError,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    step,
)
from perdure.graph.policy import DEFAULT

# ---------------------------------------------------------------- when to try again


def test_a_retry_policy_counts_the_first_attempt() -> None:
    policy = RetryPolicy(3)
    assert [policy.retries(Boom(), attempts) for attempts in (1, 2, 3, 4)] == [True, True, False, False]


def test_policy_of_one_attempt_never_retries() -> None:
    assert not RetryPolicy(1).retries(Boom(), 1)


@pytest.mark.parametrize(
    ("retry_on", "retried", "given_up"),
    [
        (ConnectionError, ConnectionResetError(), Boom()),
        ((KeyError, OSError), FileNotFoundError(), ValueError()),
        (lambda error: "again" in str(error), Boom("try again"), Boom("hopeless")),
        (BaseException, Boom(), KeyboardInterrupt()),
        (Exception, Boom(), SystemExit()),
        ((), None, Boom()),
    ],
    ids=["class", "tuple", "function", "no interrupt", "no exit", "nothing"],
)
def test_only_the_chosen_errors_are_tried_again(
    retry_on: Any, retried: BaseException | None, given_up: BaseException
) -> None:
    policy = RetryPolicy(3, retry_on=retry_on)
    assert retried is None or policy.retries(retried, 1)
    assert not policy.retries(given_up, 1)


# ---------------------------------------------------------------- how long to wait


def test_delays_grow_by_the_backoff_up_to_the_longest() -> None:
    policy = RetryPolicy(9, initial_delay=2, backoff=3, max_delay=50)
    assert [policy.delay_after(attempts) for attempts in range(1, 6)] == [2, 6, 18, 50, 50]


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert [RetryPolicy().delay_after(attempts) for attempts in (1, 2)] == [1, 2]
    assert RetryPolicy().max_attempts == 3


def test_durations_may_be_timedeltas() -> None:
    policy = RetryPolicy(5, initial_delay=timedelta(minutes=1), max_delay=timedelta(minutes=3))
    assert [policy.delay_after(attempts) for attempts in (1, 2, 3)] == [60, 120, 180]
    assert policy == RetryPolicy(5, initial_delay=60, max_delay=180)


def test_overflowing_delay_is_the_maximum_delay() -> None:
    assert RetryPolicy(5000, backoff=10.0).delay_after(4999) == 60


def test_no_delay_stays_no_delay() -> None:
    policy = RetryPolicy(5, initial_delay=0, backoff=10, jitter=1)
    assert [policy.delay_after(attempts) for attempts in (1, 2, 4)] == [0, 0, 0]


def test_jitter_spreads_delays_within_its_bounds() -> None:
    policy = RetryPolicy(3, initial_delay=10, jitter=0.1)
    delays = [policy.delay_after(1) for _ in range(300)]
    assert all(9 <= delay <= 11 for delay in delays)
    assert min(delays) < 9.7 and max(delays) > 10.3, "a chance in 10 ** 56 that one side stays empty"


# ---------------------------------------------------------------- refused values


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_attempts": 0}, "max_attempts=...): expected a positive integer, got 0"),
        ({"max_attempts": 2.0}, "expected a positive integer, got 2.0"),
        ({"max_attempts": True}, "expected a positive integer, got True"),
        (
            {"initial_delay": -1},
            "initial_delay=...) expects seconds or a timedelta",
        ),
        ({"initial_delay": "1s"}, "expects seconds or a timedelta"),
        (
            {"max_delay": float("nan")},
            "max_delay=...) expects seconds or a timedelta",
        ),
        ({"max_delay": float("inf")}, "expects seconds or a timedelta"),
        (
            {"max_delay": timedelta(seconds=-1)},
            "expects seconds or a timedelta",
        ),
        ({"initial_delay": 1e18}, "expects seconds or a timedelta"),
        ({"backoff": 0.5}, "backoff=...): expected a number of at least 1, got 0.5"),
        ({"backoff": "2"}, "expected a number of at least 1, got '2'"),
        ({"backoff": float("nan")}, "expected a number of at least 1, got nan"),
        ({"backoff": float("inf")}, "expected a number of at least 1, got inf"),
        ({"jitter": 1.5}, "jitter=...): expected a number from 0 to 1, got 1.5"),
        ({"jitter": float("nan")}, "expected a number from 0 to 1, got nan"),
        ({"retry_on": "Boom"}, "expected an exception class, a tuple of them or a function of the error, got 'Boom'"),
        ({"retry_on": int}, "expected an exception class, a tuple of them or a function of the error, got <class"),
        ({"retry_on": (Boom, 5)}, "expected an exception class, a tuple of them or a function of the error"),
    ],
)
def test_invalid_retry_option_is_rejected_with_the_name_of_its_parameter(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the sentence is compared below, without escapes
        RetryPolicy(**options)
    [value] = options.values()
    assert sentence in str(refused.value) and str(refused.value).endswith(f"got {value!r}.")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"retry": "3"}, "Executor 'x': retry= expects a RetryPolicy or a number of attempts, got '3'"),
        ({"retry": True}, "retry= expects a RetryPolicy or a number of attempts, got True"),
        ({"retry": 0}, "expected a positive integer, got 0"),
        ({"timeout": 0}, "Executor 'x': timeout= expects more than 0 seconds, got 0"),
        ({"timeout": -1}, "timeout= expects seconds or a timedelta"),
        (
            {"timeout": "soon"},
            "timeout= expects seconds or a timedelta",
        ),
        ({"on_error": None}, "on_error= expects 'stop', 'skip', 'isolate' or an executor, got None"),
    ],
)
def test_executor_rejects_invalid_policies(options: dict[str, Any], sentence: str) -> None:
    for make in (lambda: relay("x", **options), lambda: WorkflowBuilder().with_policy(relay("x"), **options)):
        with pytest.raises(ValueError) as refused:  # noqa: PT011  # the sentence is compared below, without escapes
            make()
        assert sentence in str(refused.value)


@pytest.mark.parametrize("on_error", ["skipp", 5, ["stop"]])
def test_step_rejects_on_error_that_is_neither_a_mode_nor_a_function(on_error: Any) -> None:
    with pytest.raises(ValueError, match=r"Step 'fetch': on_error= expects 'stop', 'skip', 'isolate' or a function"):

        @step(on_error=on_error)
        async def fetch() -> None: ...


# ---------------------------------------------------------------- where policies are given


class Careful(Executor):
    def __init__(self, id: str = "careful") -> None:
        super().__init__(id, retry=2, timeout=timedelta(seconds=5), on_error="skip")

    @handler
    async def take(self, message: str, ctx: WorkflowContext[str]) -> None: ...


def test_a_number_of_attempts_is_a_policy() -> None:
    assert Careful().policy.retry == RetryPolicy(2)
    assert Careful().policy.timeout == 5


def test_the_decorator_takes_a_policy() -> None:
    @executor(id="careful", retry=RetryPolicy(4), timeout=2.5, on_error="isolate")
    async def careful(message: str, ctx: WorkflowContext[str]) -> None: ...

    policy = WorkflowBuilder(start_executor=careful).build().graph.policies["careful"]
    assert (policy.retry, policy.timeout, policy.on_error) == (RetryPolicy(4), 2.5, "isolate")


def test_builder_policy_replaces_the_policy_of_the_executor() -> None:
    workflow = WorkflowBuilder(start_executor=Careful()).with_policy("careful", retry=7).build()
    policy = workflow.graph.policies["careful"]
    assert (policy.retry, policy.timeout, policy.on_error) == (RetryPolicy(7), None, "stop")


def test_empty_policy_is_not_stored() -> None:
    workflow = WorkflowBuilder(start_executor=Careful()).with_policy("careful").build()
    assert workflow.graph.policies == {} and relay("x").policy is DEFAULT


def test_with_policy_accepts_the_registered_name_of_an_executor() -> None:
    builder = WorkflowBuilder().register_executor(Careful, "registered").set_start_executor("registered")
    assert builder.with_policy("registered", on_error="isolate").build().graph.policies["careful"].contains


# ---------------------------------------------------------------- fallbacks that cannot be


def test_a_fallback_joins_the_graph_without_an_edge() -> None:
    start = failing("start", Flaky(), on_error=relay("spare"))
    workflow = WorkflowBuilder(start_executor=start).add_edge(start, sink()).build()
    assert sorted(workflow.executors) == ["sink", "spare", "start"]
    assert workflow.graph.fallbacks == {"start": "spare"}


def test_a_fallback_may_be_named_by_an_id_that_is_added_later() -> None:
    start, spare = failing("start", Flaky(), on_error="spare"), relay("spare")
    workflow = WorkflowBuilder(start_executor=start).add_edge(start, spare).build()
    assert workflow.graph.fallbacks == {"start": "spare"}


@pytest.mark.parametrize(("name", "meant"), [("spar", "spare"), ("skipp", "skip"), ("isolated", "isolate")])
def test_unknown_on_error_name_is_rejected_with_a_suggestion(name: str, meant: str) -> None:
    start = failing("start", Flaky(), on_error=name)
    with pytest.raises(GraphConnectivityError, match=f"'{name}'.*did you mean '{meant}'"):
        WorkflowBuilder(start_executor=start).add_edge(start, relay("spare")).build()


def test_a_fallback_that_cannot_take_the_messages_is_rejected() -> None:
    start = worker("start", lambda message, ctx: None, accepts=str, on_error=worker("spare", print, accepts=int))
    with pytest.raises(TypeCompatibilityError, match=r"start.*spare"):
        WorkflowBuilder(start_executor=start).build()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_cyclic_fallbacks_are_rejected(size: int) -> None:
    names = [f"n{place}" for place in range(size)]
    ring = [failing(name, Flaky(), on_error=names[(place + 1) % size]) for place, name in enumerate(names)]
    builder = WorkflowBuilder(start_executor=ring[0])
    for fallback in ring[1:]:
        builder.add_edge(ring[0], fallback)
    with pytest.raises(GraphConnectivityError, match=r"is a fallback of itself.* Let the last fallback stop, skip"):
        builder.build()


@pytest.mark.parametrize(
    ("on_error", "error", "sentence"),
    [
        (5, ValueError, "Executor 'start': on_error= expects 'stop', 'skip', 'isolate' or an executor, got 5"),
        (object(), TypeError, "expected an Executor or SupportsAgentRun"),
        (lambda: 5, TypeError, "returned 5, expected an Executor or an agent"),
    ],
    ids=["number", "object", "factory"],
)
def test_object_that_is_not_an_executor_cannot_be_a_fallback(on_error: Any, error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        WorkflowBuilder(start_executor=failing("start", Flaky(), on_error=on_error))
