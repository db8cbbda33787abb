"""Editing: the part of a workflow that changes a thread where it stands, without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.time_travel import cleared, edited_state, merged_about, with_about
from perdure.engine.history_methods import HistoryMethods
from perdure.engine.request import OnBusy, RunOptions
from perdure.names import check_identifier
from perdure.records import CheckpointInfo

if TYPE_CHECKING:
    from perdure.engine.time_travel import TimeTravel


class EditingMethods(HistoryMethods):
    """Of every workflow. Each edit is the thread's next commit, a checkpoint made by hand: the history keeps what was
    before, and the next run goes on from what is now. Each raises ThreadBusy (`on_busy` and `takeover` are those of
    `run`), ThreadNotFound, DamagedCheckpoint, UnsavableValue or NoStorage; then nothing was written."""

    async def update_state(
        self,
        thread_id: str,
        update_state: Mapping[str, Any] | None = None,
        *,
        remove_state: Iterable[str] = (),
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Give keys of the thread's state other values, of the type that they have, and leave keys out.

        What is due, pending and recorded stays as it is. The checks are those of `fork`: WrongStateType, InvalidRun.
        """

        def change(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
            return msgspec.structs.replace(head, state=edited_state(head, update_state, remove_state))

        travel = self._editing(thread_id, on_busy, takeover, checkpoint_storage)
        return await travel.edit(change)

    async def edit(
        self,
        thread_id: str,
        change: Callable[[WorkflowCheckpoint], WorkflowCheckpoint],
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Make the head what `change` gives for it: state, executors' memories, metadata. For those who know what a
        checkpoint means, such as a server: nothing but the values' types is checked."""
        return await self._editing(thread_id, on_busy, takeover, checkpoint_storage).edit(change)

    async def clear(
        self,
        thread_id: str,
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Empty the thread: state, executors' memories, and all that is due, sent, pending, recorded or yielded.

        The next message begins anew. Its history, its event log and what is said of it stay.
        """
        return await self._editing(thread_id, on_busy, takeover, checkpoint_storage).edit(cleared, settles=True)

    async def describe(
        self,
        thread_id: str,
        about: Mapping[str, Any],
        *,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        checkpoint_storage: Any = None,
    ) -> CheckpointInfo:
        """Say something of the thread: its name, for one. JSON values by key; None takes a key away, others stay.

        It is in `metadata["about"]` of this and all later checkpoints, also after a rewind or `clear`, and in those of
        its forks. Raises InvalidRun for what is not JSON.
        """

        def change(head: WorkflowCheckpoint) -> WorkflowCheckpoint:
            return with_about(head, merged_about(head, about))

        return await self._editing(thread_id, on_busy, takeover, checkpoint_storage).edit(change)

    def _editing(self, thread_id: str, on_busy: OnBusy, takeover: bool, checkpoint_storage: Any) -> TimeTravel:
        check_identifier("thread_id", thread_id)
        options: RunOptions = {"thread_id": thread_id, "on_busy": on_busy, "takeover": takeover}
        return self._travel("Editing a thread", checkpoint_storage, options)
