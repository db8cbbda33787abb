"""Dependencies of the project: `my_checkpointer`, the storage in which the server keeps its threads.

With DATABASE_URL set it is PostgreSQL, for any number of servers, and REDIS_URL may name a Redis that wakes them
faster (pip install 'perdure[postgres,redis]'). Otherwise it is a file of this project.
"""

from __future__ import annotations

import os
from pathlib import Path

from perdure import SqliteCheckpointStorage, open_store

database_url = os.environ.get("DATABASE_URL", "")
redis_url = os.environ.get("REDIS_URL") if database_url.startswith("postgres") else None

my_checkpointer = (
    open_store(database_url, redis_url=redis_url)
    if database_url
    else SqliteCheckpointStorage(Path(__file__).parents[1] / "perdure.db")
)
