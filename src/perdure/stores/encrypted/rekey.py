"""Encrypting all payloads of a store with the current key, and checking that they can be decrypted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from perdure.errors import DamagedCheckpoint, DamagedStore, WorkflowCheckpointException
from perdure.names import RESERVED_THREAD
from perdure.records import Damage
from perdure.store import Store
from perdure.stores.encrypted.payloads import Encryption, ThreadPayloads

Progress = Callable[[int, int, str], None]
"""Called after each thread: how many are done, how many exist, and its id."""


class NotRekeyed(msgspec.Struct, frozen=True):
    """A thread with a payload that `rekey` could not change, and the reason."""

    thread_id: str
    reason: str


class RekeyReport(msgspec.Struct, frozen=True):
    """What `rekey` counted and changed."""

    current_key_id: str
    threads: int
    """How many were examined."""
    payloads: Mapping[str, int]
    """How many were under each key before."""
    rewritten: int
    """How many are now encrypted with the current key; 0 in a dry run."""
    failed: Sequence[NotRekeyed] = ()
    """Payloads that stay under another key, because they cannot be decrypted."""

    @property
    def is_complete(self) -> bool:
        """Whether no other key is needed."""
        others = sum(count for key_id, count in self.payloads.items() if key_id != self.current_key_id)
        return not self.failed and others == self.rewritten


async def rekey(
    store: Store, encryption: Encryption, *, dry_run: bool = False, progress: Progress | None = None
) -> RekeyReport:
    """Running threads keep running. A second call continues an interrupted one."""
    current = encryption.current_key_id
    payloads: Counter[str] = Counter()
    failed: list[NotRekeyed] = []
    rewritten = 0
    thread_ids = [thread_id for thread_id in await store.thread_ids() if thread_id != RESERVED_THREAD]
    for done, thread_id in enumerate([RESERVED_THREAD, *thread_ids]):
        rekeying = _ThreadRekeying(encryption, thread_id, current, is_dry=dry_run)
        try:
            rewritten += await store.rewrite(thread_id, rekeying.change)
        except (DamagedCheckpoint, DamagedStore) as error:
            rewritten += rekeying.changed
            failed.append(NotRekeyed(thread_id, error.reason))
        payloads += rekeying.payloads
        failed += [NotRekeyed(thread_id, reason) for reason in rekeying.problems]
        if progress is not None and done:
            progress(done, len(thread_ids), thread_id)
    return RekeyReport(current, len(thread_ids), dict(payloads), rewritten, failed)


class _ThreadRekeying:
    def __init__(self, encryption: Encryption, thread_id: str, current: str, *, is_dry: bool) -> None:
        self._encryption = encryption
        self._thread = ThreadPayloads(encryption, thread_id)
        self._current = current
        self._is_dry = is_dry
        self.payloads: Counter[str] = Counter()
        self.changed = 0
        self.problems: list[str] = []

    def change(self, kind: str, name: str, payload: bytes) -> bytes:
        key_id = self._encryption.key_id_of(payload)
        if key_id is not None:
            self.payloads[key_id] += 1
        if key_id == self._current or (self._is_dry and key_id is not None):
            return payload
        try:
            data = self._thread.unseal(kind, name, payload)
        except WorkflowCheckpointException as error:
            self.problems.append(error.reason if isinstance(error, DamagedCheckpoint) else str(error))
            return payload
        self.changed += 1
        return self._thread.seal(kind, name, data)


async def find_damage(store: Store, encryption: Encryption) -> list[Damage]:
    """All payloads that cannot be decrypted."""
    damage: list[Damage] = []
    for thread_id in await store.thread_ids():
        payloads = ThreadPayloads(encryption, thread_id)

        def check(
            kind: str, name: str, payload: bytes, payloads: ThreadPayloads = payloads, thread_id: str = thread_id
        ) -> bytes:
            try:
                payloads.unseal(kind, name, payload)
            except WorkflowCheckpointException as error:
                reason = error.reason if isinstance(error, DamagedCheckpoint) else str(error)
                damage.append(Damage(reason, thread_id))
            return payload

        try:
            await store.rewrite(thread_id, check)
        except (DamagedCheckpoint, DamagedStore):
            continue  # the store reports that itself
    return damage
