"""Before lists are read, threads of dead processes are released; those of live processes are not."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.platform import ProcessIdentity
from perdure.stores.file.folder import LockedFile
from perdure.stores.file.store import FileStore
from perdure.stores.process_identity import own_identity
from perdure.testing.conformance.threads import own


async def test_process_with_the_pid_of_a_dead_process_keeps_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    owner = await own(store, "t")
    await owner.save()
    index: Any = store._index
    living = msgspec.json.decode(own_identity(os.getpid()), type=ProcessIdentity)
    dead = dataclasses.replace(living, started="long ago")

    def set_identity(identity: str) -> None:
        index.transact(lambda db: db.execute("UPDATE processes SET identity = ?", (identity,)))

    catch_up = index.catch_up

    def live_again(file: LockedFile) -> None:  # between the look at who is dead and what is made of it
        catch_up(file)
        set_identity(msgspec.json.encode(living).decode())

    monkeypatch.setattr(index, "catch_up", live_again)
    await store._access.write(
        lambda db: db.execute("UPDATE processes SET identity = ?", (msgspec.json.encode(dead).decode(),))
    )
    await store.threads()
    await owner.save()
    assert [info.number for info in await store.infos(thread_id="t")] == [1, 2]
    await store.close()
