"""Where a server keeps threads: the storage that the configuration names, and that is used for every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from perdure.checkpoints.open_thread import CheckpointStorage
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.log import get_logger
from perdure.server.app.project import Project
from perdure.server.app.registry import Registry
from perdure.server.config.checks import is_store_url
from perdure.server.config.errors import NotServable
from perdure.server.config.schema import ServerConfig
from perdure.storages import keys_in_environment, open_store

DEFAULT = "sqlite:///perdure.db"
_log = get_logger(__name__)


def storage_of(config: ServerConfig, project: Project, registry: Registry) -> StoreCheckpointStorage:
    """That of `checkpointer`, else that of the default workflow, else a SQLite file in the project's folder.

    Nothing of it is opened yet. Raises NotImportable, NotServable, or ValueError for a URL that names none.
    """
    named = config.checkpointer
    own = None if registry.default is None else registry.default.workflow.checkpoint_storage
    if named is not None and not is_store_url(named):
        storage = _usable(named, _object(named, project))
    elif named is None and own is not None and registry.default is not None:
        storage = _usable(registry.default.named, own, "has")
    else:
        storage = opened(named or DEFAULT, config.redis, project.folder)
    for served in registry:
        if served.workflow.checkpoint_storage not in (None, storage):
            _log.warning(
                "%s has a storage of its own, which is not used: threads are kept in the server's.", served.name
            )
    return storage


def opened(url: str, redis_url: str | None, folder: Path) -> StoreCheckpointStorage:
    """The storage of a URL; paths in it are relative to the folder."""
    is_postgres = url.lower().startswith(("postgresql:", "postgres:"))
    return open_store(
        within(folder, url), redis_url=redis_url if is_postgres else None, encryption=keys_in_environment()
    )


def within(folder: Path, url: str) -> str:
    """The URL with the path from the root, if it has one from here."""
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon or len(scheme) == 1:
        return str(folder / url)
    if scheme not in ("sqlite", "file") or "?" in rest or "#" in rest:  # such are refused when it is opened
        return url
    path = unquote(rest.removeprefix("///" if scheme == "sqlite" and rest.startswith("///") else "//"))
    if not path or Path(path).is_absolute():
        return url
    absolute = quote((folder / path).as_posix())
    return f"sqlite:///{absolute}" if scheme == "sqlite" else f"file://{absolute}"


def _object(named: str, project: Project) -> Any:
    found = project.import_object(named)
    if isinstance(found, type) or not callable(found):
        return found
    try:
        return found()
    except Exception as error:
        raise NotServable(named, f"was called without arguments, and failed: {project.told(error)}.") from error


def _usable(named: str, storage: Any, verb: str = "is") -> StoreCheckpointStorage:
    if isinstance(storage, StoreCheckpointStorage):
        return storage
    if isinstance(storage, type):
        raise NotServable(named, f"{verb} the class {storage.__name__}, not an object of it. Call it.")
    kind = type(storage).__name__
    if isinstance(storage, CheckpointStorage):
        raise NotServable(
            named,
            f"{verb} a storage of your own ({kind}) with six methods: it has no event log, so nobody could follow a "
            "thread, or go on with it on another server. Write a Store and use StoreCheckpointStorage(store), or name "
            "a URL, such as sqlite:///perdure.db.",
        )
    raise NotServable(
        named, f"{verb} no storage, but a {kind}. Use open_store('sqlite:///threads.db'), or name the URL itself."
    )
