"""What a storage can do with whole threads: export, import, and prove that nothing is damaged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.records import Damage, ThreadInfo
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.checkpoints.copying import Progress
    from holdfast.checkpoints.transfer import ExportReport


class TransferMethods:
    """Of `StoreCheckpointStorage`."""

    store: Store

    async def export_thread(
        self, thread_id: str, path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> ExportReport:
        """Write the thread to a file: history, branches, pins, events, journal, inbox and pending requests.

        The file is there when all of it is written and synced. A thread that is being run can be exported: the file
        holds one moment of it. Raises FileExistsError, ThreadNotFound, DamagedCheckpoint, or ThreadBusy for a thread
        that is pruned again and again while it is read.
        """
        from holdfast.checkpoints.transfer import export_thread

        return await export_thread(self.store, thread_id, path, overwrite=overwrite)

    async def import_thread(self, path: str | os.PathLike[str], *, thread_id: str | None = None) -> ThreadInfo:
        """Keep the thread of a file that `export_thread` wrote, from whichever kind of storage: all of it or nothing.

        With `thread_id` it gets that id, and its checkpoints get new ids. Raises NoThreadFile for a file that is
        damaged or something else, NewerFormat, or ThreadExists.
        """
        from holdfast.checkpoints.transfer import import_thread

        return await import_thread(self.store, path, thread_id=thread_id)

    async def verify(self, *, thread_id: str | None = None, progress: Progress | None = None) -> list[Damage]:
        """Look at all that is stored, or at one thread: every digest, every link, every count. Gives what is damaged.

        Nothing is changed, and no value is built. `progress(done, total, thread_id)` is told of each thread.
        Raises ThreadNotFound.
        """
        from holdfast.checkpoints.verification import verify

        return await verify(self.store, thread_id=thread_id, progress=progress)
