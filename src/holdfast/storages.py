"""The storages users construct: a driver under the one storage class."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.storage import StoreCheckpointStorage
from holdfast.codec import Codec
from holdfast.stores.memory import MemoryStore


class InMemoryCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints as long as the process lives: for tests, demonstrations and short-lived work."""

    def __init__(
        self,
        *,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] = (),
        allowed_checkpoint_types: Iterable[type | str] = (),
    ) -> None:
        super().__init__(
            MemoryStore(),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
        )
