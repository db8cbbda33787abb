"""What a storage can do with whole threads: export, import, and prove that nothing is damaged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from perdure.checkpoints.access import Access
from perdure.errors import DamagedCheckpoint, DamagedStore, StorageFailed
from perdure.records import Damage, ThreadInfo

if TYPE_CHECKING:
    from perdure.checkpoints.transfer.copy_store import Progress
    from perdure.checkpoints.transfer.threads import ExportReport


class TransferMethods(Access):
    """Of `StoreCheckpointStorage`."""

    async def export_thread(
        self, thread_id: str, path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> ExportReport:
        """Write the thread to a file: history, branches, pins, events, journal, inbox and pending requests.

        The file is there when all of it is written and synced. A thread that is being run can be exported: the file
        holds one moment of it. Raises FileExistsError, ThreadNotFound, DamagedCheckpoint, or ThreadBusy for a thread
        that is pruned again and again while it is read.
        """
        from perdure.checkpoints.transfer.threads import export_thread

        await self.refuse_missing_key()
        return await export_thread(self.store, thread_id, path, overwrite=overwrite)

    async def import_thread(self, path: str | os.PathLike[str], *, thread_id: str | None = None) -> ThreadInfo:
        """Keep the thread of a file that `export_thread` wrote, from whichever kind of storage: all of it or nothing.

        With `thread_id` it gets that id, and its checkpoints get new ids. Raises NoThreadFile for a file that is
        damaged or something else, NewerFormat, or ThreadExists.
        """
        from perdure.checkpoints.transfer.threads import import_thread

        await self.refuse_missing_key()
        return await import_thread(self.store, path, thread_id=thread_id)

    async def verify(self, *, thread_id: str | None = None, progress: Progress | None = None) -> list[Damage]:
        """Look at all that is stored, or at one thread: every digest, every link, every count. Gives what is damaged.

        Nothing is changed, and no value is built. `progress(done, total, thread_id)` is told of each thread.
        Raises ThreadNotFound.
        """
        from perdure.checkpoints.integrity.verify import verify

        try:
            await self.refuse_missing_key()
        except (DamagedStore, DamagedCheckpoint, StorageFailed):
            pass  # what cannot be looked at is told below, as damage
        return await verify(self.store, thread_id=thread_id, progress=progress)

    async def rekey(self, *, dry_run: bool = False, progress: Progress | None = None) -> Any:
        """Put everything under the current key of `encryption`; what came of it, as a `RekeyReport`.

        Threads that are being run go on. Interrupted, it is completed by calling it again. `dry_run` only counts.
        Raises ValueError for a storage without encryption.
        """
        rekey = getattr(self.store, "rekey", None)
        if rekey is None:
            await self.refuse_missing_key()
            raise ValueError(
                "This storage has no encryption, so there is nothing to put under another key. Pass"
                " encryption=AesGcm(...)."
            )
        return await rekey(dry_run=dry_run, progress=progress)
