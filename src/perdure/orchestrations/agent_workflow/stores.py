"""Where workflows are kept: their definitions, and the checkpoints of their executions."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

from perdure import storages
from perdure.checkpoints.retention import FullHistory, LatestOnly, Retention, as_retention
from perdure.checkpoints.storage import StoreCheckpointStorage


class MultiAgentCheckpointRetention(Enum):
    """What is kept of an execution's history, under familiar names."""

    LatestOnly = "LatestOnly"
    FullHistory = "FullHistory"


def retention_of(given: Any) -> Retention:
    """Of a class, an instance, or a member of MultiAgentCheckpointRetention; None: LatestOnly."""
    if given is None:
        return LatestOnly()
    if isinstance(given, MultiAgentCheckpointRetention):
        return LatestOnly() if given is MultiAgentCheckpointRetention.LatestOnly else FullHistory()
    return as_retention(given)


def memory_storage(retention: Any) -> StoreCheckpointStorage:
    return storages.InMemoryCheckpointStorage(retention=retention_of(retention))


def json_storage(root_directory: str | os.PathLike[str], retention: Any) -> StoreCheckpointStorage:
    return storages.FileCheckpointStorage(root_directory, retention=retention_of(retention))


def sqlite_storage(path: str | os.PathLike[str], retention: Any) -> StoreCheckpointStorage:
    return storages.SqliteCheckpointStorage(path, retention=retention_of(retention))


def postgres_storage(dsn: str, retention: Any, **options: Any) -> StoreCheckpointStorage:
    return storages.PostgresCheckpointStorage(dsn, retention=retention_of(retention), **options)
