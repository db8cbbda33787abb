"""The records of one delivery: results with the effects of their steps, errors, and revocations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.cancelling import await_uncancelled
from perdure.codec import Encoded
from perdure.engine.delivery.calls import Frame, StepCall, inside
from perdure.engine.delivery.scope import value_of
from perdure.engine.thread.effects import Effects, Replaced, decode_effects, encode_effects
from perdure.errors import UnreadableValue, UnsavableValue
from perdure.isolation import isolate, same_structure
from perdure.log import get_logger
from perdure.records import Record, RecordKind, WorkflowMessage

if TYPE_CHECKING:
    from perdure.engine.delivery.lane import Lane


_ABSENT: Any = type("Absent", (), {})()


class PrivateView(MutableMapping[str, Any]):
    """`ctx.private` in a delivery with steps: the same dict, and `touch` is called before each use of a key."""

    def __init__(self, private: dict[str, Any], touch: Callable[[str], None]) -> None:
        self._private = private
        self._touch = touch

    def __getitem__(self, key: str) -> Any:
        self._touch(key)
        return self._private[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._touch(key)
        self._private[key] = value

    def __delitem__(self, key: str) -> None:
        self._touch(key)
        del self._private[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._private))

    def __len__(self) -> int:
        return len(self._private)

    def __repr__(self) -> str:
        return repr(self._private)


def value_before(private: Mapping[str, Any], key: str) -> Any:
    """A copy of a key's value, for a later comparison."""
    return isolate(private[key]) if key in private else _ABSENT


def private_changes(before: Mapping[str, Any], private: Mapping[str, Any]) -> dict[str, Any] | None:
    """The recorded form of changes to the used keys; None if nothing changed."""
    changed = {key for key, value in before.items() if not same_structure(private.get(key, _ABSENT), value)}
    if not changed:
        return None
    return {
        "changed": {key: isolate(private[key]) for key in changed if key in private},
        "gone": [key for key in changed if key not in private],
    }


def redo_private(private: MutableMapping[str, Any], recorded: Mapping[str, Any]) -> None:
    private.update(isolate(recorded["changed"]))
    for key in recorded["gone"]:
        private.pop(key, None)


def undo_private(private: MutableMapping[str, Any], before: Mapping[str, Any]) -> None:
    """Restore the used keys."""
    for key, value in before.items():
        if value is _ABSENT:
            private.pop(key, None)
        else:
            private[key] = value


logger = get_logger("engine")

T = TypeVar("T")


class Recorder:
    def __init__(self, lane: Lane, message: WorkflowMessage) -> None:
        self._lane = lane
        self._journal = lane.scope.journal
        self._delivery_id = message.delivery_id
        self.records = self._journal.records_of(message, lane.level.position)
        self._failures: dict[int, BaseException] = {}
        """Place of a record -> its error, as raised in this run."""
        self.journal_error: Exception | None = None
        """Why nothing can be recorded any more. The delivery fails with it, even if its code catches it."""

    async def append(self, record: Record) -> int:
        """Record, even if the delivery is cancelled meanwhile. Returns the place of the record.

        Raises the error of the storage, now and for every later record.
        """
        self.check()
        place, cancelled = await self.unless_broken(await_uncancelled(self._journal.append(self._delivery_id, record)))
        if cancelled is not None:
            raise cancelled
        return place

    async def unless_broken(self, work: Awaitable[T]) -> T:
        """The result of the work. Its error fails the delivery, not the step."""
        try:
            return await work
        except Exception as error:
            self.journal_error = error
            raise

    def check(self) -> None:
        if self.journal_error is not None:
            raise self.journal_error

    async def record(self, kind: RecordKind, call: StepCall, value: Any = None, effects: Any = None) -> int:
        run_id = self._lane.scope.run_id
        record = Record(kind, call.key, call.name, call.after, call.within, value, effects, run_id=run_id)
        return await self.append(record)

    async def record_result(self, call: StepCall, value: Any, frame: Frame | None = None) -> None:
        """Raises UnsavableValue, with the step's name, for a result that cannot be stored."""
        effects: Any = None if frame is None else self._done_in(frame)
        codec = self._lane.scope.codec
        try:
            if effects is not None and codec is not None:
                effects = Encoded(encode_effects(effects, self._lane.executor_id, codec), codec)
            kept = self._journal.freeze(value, f"result of step {call.name!r}")
        except UnsavableValue as error:
            self.journal_error = error
            raise
        await self.record("step", call, kept, effects)

    def _done_in(self, frame: Frame) -> Effects | None:
        """The effects of the step, its in-place changes included; None if it has none."""
        lane, did = self._lane, Effects()
        did.sends, did.outputs, did.requests = frame.effects.sends, frame.effects.outputs, frame.effects.requests
        did.write(frame.effects.writes)
        if frame.read and lane.touched_state is not None:
            changed = lane.touched_state.changed_since(frame.read, lane.scope.codec)
            did.write((key, Replaced(isolate(value))) for key, value in changed)
        if frame.private:
            did.private = private_changes(frame.private, lane.private)
        did.use(frame.effects.usage)
        is_something = did.sends or did.outputs or did.requests or did.writes or did.usage or did.private is not None
        return did if is_something else None

    async def record_failure(self, call: StepCall, error: Exception) -> None:
        """Record an error, so that code that caught it takes the same path when it runs again."""
        try:
            kept = [error] if self._lane.scope.codec is None else self._kept_chain(error)
        except UnsavableValue:
            text = "step %r failed with %s, which cannot be stored: it is called again when its delivery runs again"
            logger.warning(text, call.name, type(error).__name__)
            return
        self._failures[await self.record("failed", call, kept)] = error

    def _kept_chain(self, error: BaseException) -> Any:
        """The error and its causes, as far as they can be stored. Raises UnsavableValue for the error itself."""
        chain = [error]
        self._journal.freeze(error, "error")
        while chain[-1].__cause__ is not None:
            try:
                self._journal.freeze(chain[-1].__cause__, "error")
            except UnsavableValue:
                break
            chain.append(chain[-1].__cause__)
        return self._journal.freeze(chain, "error")

    def read(self, record: Record) -> tuple[Effects | None, Any]:
        """Effects and value of a recorded call; for a failed one, the error to raise.

        Raises UnreadableValue for a damaged record. The delivery fails with it, not the step.
        """
        try:
            value = value_of(record.value, f"record of {record.name!r}")
            effects = self._effects_of(record)
            return effects, self._error_again(record, value) if record.kind == "failed" else value
        except UnreadableValue as error:
            self.journal_error = error
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            self.journal_error = UnreadableValue(
                f"record of {record.name!r}", f"its parts do not fit together ({error!r})"
            )
            raise self.journal_error from error

    def _effects_of(self, record: Record) -> Effects | None:
        kept = record.effects
        if isinstance(kept, Encoded):
            return decode_effects(kept.tree, self._lane.executor_id, kept.codec)
        effects: Effects | None = kept
        return effects

    def _error_again(self, record: Record, chain: list[BaseException]) -> BaseException:
        if not chain or not all(isinstance(error, BaseException) for error in chain):
            raise TypeError("it contains no error")
        for error, cause in pairwise(chain):
            error.__cause__ = cause
        place = next(place for place, other in enumerate(self.records) if other is record)
        self._failures[place] = chain[0]
        return chain[0]

    async def take_back(self, record: Record) -> None:
        places = [place for place, other in enumerate(self.records) if other is record]
        await self.unless_broken(self._journal.take_back(self._delivery_id, places))

    def _failed_because_of(self, error: BaseException) -> set[str]:
        """Keys of the calls whose recorded failures led to the error."""
        causes = set(map(id, _causes(error, set(map(id, self._failures.values())))))
        return {self.records[place].key for place, failure in self._failures.items() if id(failure) in causes}

    async def take_back_inner(self, within: str, error: BaseException) -> None:
        """Revoke the calls that made an attempt of a step fail: the next attempt repeats them."""
        if self.journal_error is not None:
            return
        failed = self._failed_because_of(error)
        kinds = ("failed", "attempt")
        places = [
            place
            for place, record in enumerate(self.records)
            if record.kind == "cancelled" or (record.key in failed and record.kind in kinds)
            if record.key.endswith(inside(within))
        ]
        if getattr(error, "asks_again", False):  # the result of the last call was the cause
            steps = [place for place, record in enumerate(self.records) if record.kind == "step"]
            places += [place for place in steps if self.records[place].key.endswith(inside(within))][-1:]
        await self.unless_broken(self._journal.take_back(self._delivery_id, places))

    async def take_back_failures(self, error: BaseException) -> bool:
        """Revoke the failures that ended the delivery: its next attempt repeats their steps.

        Returns False, and revokes nothing, if a call was recorded after such a failure in the same flow of control.
        The code has then handled the failure, for example by compensating earlier steps, so a repeated step would
        succeed after its compensation.
        """
        if self.journal_error is not None:
            return False
        failed = self._failed_because_of(error)
        # Calls may have been cancelled because of the failure.
        failed |= {record.key for record in self.records if record.kind == "cancelled"}
        if failed & {record.after for record in self.records if record.kind in ("step", "failed")}:
            return False
        kinds = ("failed", "cancelled", "attempt")
        places = [place for place, record in enumerate(self.records) if record.key in failed and record.kind in kinds]
        await self._journal.take_back(self._delivery_id, places)
        return True


def _causes(error: BaseException, recorded: set[int]) -> list[BaseException]:
    """An error, those in its group, and all their causes.

    An error that was being handled counts as a cause, except for a recorded failure: that step had its own reason.
    """
    causes: dict[int, BaseException] = {}
    todo: list[BaseException | None] = [error]
    while todo:
        cause = todo.pop()
        if cause is not None and id(cause) not in causes:
            causes[id(cause)] = cause
            context = None if id(cause) in recorded else cause.__context__
            todo += [cause.__cause__, context, *getattr(cause, "exceptions", ())]
    return list(causes.values())
