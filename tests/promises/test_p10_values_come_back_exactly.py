"""Promise 10: what goes through a checkpoint comes back equal and of the same type, wherever it stood."""

from __future__ import annotations

import collections
import enum
import uuid
import warnings
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from tests.promises.stages import Again, Boom, Does, Stage, alone
from tests.unit.codecs.samples import TYPES, same
from tests.unit.codecs.values import EVERYTHING

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    PickleSerializer,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    """A subclass of str."""


class Point(NamedTuple):
    x: int
    y: float


VALUES: dict[str, Any] = {
    "int keys beside their texts": {1: "int", "1": "str", (1, 2): "tuple", None: "none", 2.5: True},
    "enums": [Colour.RED, Level.HIGH, {Level.HIGH: Colour.RED}],
    "subclasses": [Name("x"), collections.Counter("aab"), collections.OrderedDict(b=1, a=2)],
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "tuples in lists": [(1, [2, (3,)]), Point(1, 2.0), ()],
    "sets": [{1, "1"}, frozenset({(1, 2)}), set()],
    "bytes": [b"\x00\xff", bytearray(b"abc")],
    "times": [datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime.max, date(2026, 1, 2), timedelta(days=-1)],
    "ids and numbers": [uuid.UUID(int=7), Decimal("1.10"), Fraction(1, 3), 2**200, -0.0, 1e400, float("nan")],
    "paths": PurePosixPath("/a/b"),
    "text": ["Grüße, 世界 \U0001f30d", "\u2028\x00\x7f", "", "\ud7ff"],
    "every type of the codec's own tests": EVERYTHING,
}


class ValueHolder(Executor):
    """Keeps the value in its own memory too."""

    def __init__(self, id: str, stage: Stage, value: Any) -> None:
        super().__init__(id)
        self.stage = stage
        self.value = value
        self.kept: Any = None

    @handler
    async def keep(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        value = self.kept = self.value[0]
        ctx.set_state("value", value)
        ctx.private["value"] = value
        await ctx.yield_output(value)
        await ctx.request_info(("sure?", value), object, request_id="r")
        await ctx.send_message(value)

    @response_handler(request=tuple, response=object, workflow_output=Any)
    async def answered(self, question: Any, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await self.stage.play("answered", "")
        places = {"question": question[1], "answer": answer, "hooks": self.kept, "private": ctx.private["value"]}
        await ctx.yield_output({**places, "state": ctx.get_state("value"), "argument": ctx.client_kwargs["value"]})

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"kept": self.kept}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


def keeping(stage: Stage, storage: Any, value: Any) -> Workflow:
    async def read(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await stage.play("read", "")
        await ctx.yield_output(message)

    holder, reader = ValueHolder("keeper", stage, (value,)), Does("reader", read)
    builder = WorkflowBuilder(name="keeping", start_executor=holder, checkpoint_storage=storage, allowed_types=TYPES)
    return builder.add_edge(holder, reader).build()


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
async def test_a_value_is_the_same_in_every_place_after_a_resume(any_storage: Any, again: Again, value: Any) -> None:
    """In a message, the state, private state, an output, a request, an answer, a run argument, an executor's hooks."""
    stage = Stage()
    stage.failing = {"read", "answered"}
    workflow = keeping(stage, any_storage, value)
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t", client_kwargs={"value": value})
    stage.failing = {"answered"}
    workflow = again(workflow, lambda: keeping(stage, any_storage, value))
    result = await workflow.run(thread_id="t")
    assert same(result.get_outputs(), [value, value])
    with pytest.raises(Boom):
        await workflow.run(thread_id="t", responses={"r": value})
    stage.failing = set()
    places = (await again(workflow, lambda: keeping(stage, any_storage, value)).run(thread_id="t")).get_outputs()[0]
    assert set(places) == {"question", "answer", "hooks", "private", "state", "argument"}
    assert [name for name, restored in places.items() if not same(restored, value)] == []


async def test_two_keys_that_look_alike_are_both_kept(any_storage: Any) -> None:
    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("both", {1: "a", "1": "b"})

    result = await alone(Does("keep", keep), any_storage).run("x")
    assert (await any_storage.load(result.checkpoint_id)).state == {"both": {1: "a", "1": "b"}}


async def test_text_of_any_alphabet_survives_in_utf8(storage: Any) -> None:
    """The stored bytes are UTF-8 whatever the locale is."""
    text = "Grüße 世界 \U0001f30d"

    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state(message, message)

    await alone(Does("keep", keep), storage).run(text, thread_id="t")
    head = await storage.store.head("t")
    assert text.encode() in head.root
    assert (await storage.get_latest(thread_id="t")).state == {text: text}


async def test_no_pickle_is_ever_written(storage: Any) -> None:
    import json

    stage = Stage()
    await keeping(stage, storage, VALUES["sets"]).run("x", thread_id="t", client_kwargs={"value": 1})
    for info in await storage.list_checkpoint_infos():
        stored = await storage.store.find_checkpoint(info.checkpoint_id)
        assert "counters" in json.loads(stored.root)
        assert b"pickle" not in stored.root


async def test_pickle_serializer_works_and_warns() -> None:
    with pytest.warns(UserWarning, match="[Pp]ickle"):
        serializer = PickleSerializer()
    storage = InMemoryCheckpointStorage(serializer=serializer)

    async def keep(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("kept", {1: Point(1, 2.0), "f": len})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await alone(Does("keep", keep), storage).run("x")
        assert result.checkpoint_id is not None
        assert (await storage.load(result.checkpoint_id)).state == {"kept": {1: Point(1, 2.0), "f": len}}
