"""All payloads of a store under the current key, and whether they can be decrypted at all."""

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
"""Told of each thread that is done with: how many were, how many there are, and its id."""


class NotRekeyed(msgspec.Struct, frozen=True):
    """Something that `rekey` left as it is, and why."""

    thread_id: str
    reason: str


class RekeyReport(msgspec.Struct, frozen=True):
    """What `rekey` found, and what it did."""

    current_key_id: str
    threads: int
    """How many were looked at."""
    payloads: Mapping[str, int]
    """How many were under each key before."""
    rewritten: int
    """How many were put under the current key; none in a dry run."""
    failed: Sequence[NotRekeyed] = ()
    """What was left under another key, because it cannot be read."""

    @property
    def is_complete(self) -> bool:
        """Whether no other key is needed any more."""
        others = sum(count for key_id, count in self.payloads.items() if key_id != self.current_key_id)
        return not self.failed and others == self.rewritten


async def rekey(
    store: Store, encryption: Encryption, *, dry_run: bool = False, progress: Progress | None = None
) -> RekeyReport:
    """Whoever runs a thread goes on meanwhile. Done again, it does what is left to do."""
    current = encryption.current_key_id
    found: Counter[str] = Counter()
    failed: list[NotRekeyed] = []
    rewritten = 0
    thread_ids = [one for one in await store.thread_ids() if one != RESERVED_THREAD]
    for done, thread_id in enumerate([RESERVED_THREAD, *thread_ids]):
        one = _Rekeying(encryption, thread_id, current, is_dry=dry_run)
        try:
            rewritten += await store.rewrite(thread_id, one.change)
        except (DamagedCheckpoint, DamagedStore) as error:
            rewritten += one.changed
            failed.append(NotRekeyed(thread_id, error.reason))
        found += one.found
        failed += [NotRekeyed(thread_id, reason) for reason in one.problems]
        if progress is not None and done:
            progress(done, len(thread_ids), thread_id)
    return RekeyReport(current, len(thread_ids), dict(found), rewritten, failed)


class _Rekeying:
    """Of one thread."""

    def __init__(self, encryption: Encryption, thread_id: str, current: str, *, is_dry: bool) -> None:
        self._encryption = encryption
        self._payloads = ThreadPayloads(encryption, thread_id)
        self._current = current
        self._is_dry = is_dry
        self.found: Counter[str] = Counter()
        self.changed = 0
        self.problems: list[str] = []

    def change(self, kind: str, name: str, payload: bytes) -> bytes:
        key_id = self._encryption.key_id_of(payload)
        if key_id is not None:
            self.found[key_id] += 1
        if key_id == self._current or (self._is_dry and key_id is not None):
            return payload
        try:
            data = self._payloads.unseal(kind, name, payload)
        except WorkflowCheckpointException as error:
            self.problems.append(error.reason if isinstance(error, DamagedCheckpoint) else str(error))
            return payload
        self.changed += 1
        return self._payloads.seal(kind, name, data)


async def damages(store: Store, encryption: Encryption) -> list[Damage]:
    """What of all that is stored cannot be decrypted."""
    found: list[Damage] = []
    for thread_id in await store.thread_ids():
        payloads = ThreadPayloads(encryption, thread_id)

        def look(
            kind: str, name: str, payload: bytes, payloads: ThreadPayloads = payloads, thread_id: str = thread_id
        ) -> bytes:
            try:
                payloads.unseal(kind, name, payload)
            except WorkflowCheckpointException as error:
                reason = error.reason if isinstance(error, DamagedCheckpoint) else str(error)
                found.append(Damage(reason, thread_id))
            return payload

        try:
            await store.rewrite(thread_id, look)
        except (DamagedCheckpoint, DamagedStore):
            continue  # the store has told that itself
    return found
