"""Creates a service from its configuration: storage, authenticator, limiter. Mistakes raise before anything starts."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from perdure.checkpoints.any_storage import CheckpointStorage
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import Clock
from perdure.log import get_logger
from perdure.server.auth.api_keys import ApiKeys, KeyFile
from perdure.server.auth.custom import CustomAuthenticator, CustomAuthorizer
from perdure.server.auth.principal import EVERYTHING, Authenticator, Authorizer, RoleScopes, check_scopes
from perdure.server.config.reading import is_store_url, refuse_mistakes
from perdure.server.config.schema import NotServable, ServerConfig, invalid
from perdure.server.rate_limit import MemoryLimiter, RateLimiter, ValkeyLimiter, ping_of
from perdure.server.registry import Project, Registry
from perdure.server.service import Check, Service
from perdure.server.threads.conversation import make_naming
from perdure.storages import keys_in_environment, open_store


def make_service(config: ServerConfig, environ: Mapping[str, str] = os.environ) -> Service:
    """Raises InvalidConfig, NotImportable, NotServable."""
    from perdure.server.metrics import Metrics  # needs an extra, which `perdure doctor` does not

    project = Project(config.folder)
    project.put_first()
    registry = Registry.of(config, project)
    storage = make_storage(config, project, registry)
    check_exposure(config, storage)
    naming = None
    if config.thread_name_generator is not None:
        generator = project.import_object(config.thread_name_generator)
        naming = make_naming(config.thread_name_generator, generator, storage)
    return Service(
        config,
        registry,
        storage,
        authenticator=make_authenticator(config, project.import_object, environ),
        authorizer=make_authorizer(config, project.import_object),
        limiter=make_limiter(config),
        metrics=Metrics(),
        name_threads=naming,
        backends=_backends(config, storage),
    )


def _backends(config: ServerConfig, storage: StoreCheckpointStorage) -> dict[str, Check]:
    """The readiness checks, by dependency."""

    async def ask_storage() -> object:
        async with storage.access("check that the storage is available"):
            return await storage.store.thread_ids(limit=1)

    names = [type(layer).__name__ for layer in _layers(storage.store)]
    checks: dict[str, Check] = {"postgresql" if "PostgresStore" in names else "storage": ask_storage}
    ping = next((layer.ping for layer in _layers(storage.store) if hasattr(layer, "ping")), None)
    if ping is not None:
        checks["redis"] = ping
    elif config.redis is not None:
        checks["redis"] = ping_of(config.redis)
    return checks


def _layers(store: object) -> list[object]:
    """A store and the stores below it: encryption and Valkey are layers."""
    layers = [store]
    while (under := getattr(layers[-1], "inner", None)) is not None:
        layers.append(under)
    return layers


DEFAULT_STORE = "sqlite:///perdure.db"
logger = get_logger(__name__)


def make_storage(config: ServerConfig, project: Project, registry: Registry) -> StoreCheckpointStorage:
    """The storage of `checkpointer`, else of the default workflow, else a SQLite file in the project's folder.

    Nothing is opened yet. Raises NotImportable, NotServable, or ValueError for an invalid URL.
    """
    checkpointer = config.checkpointer
    own = None if registry.default is None else registry.default.workflow.checkpoint_storage
    if checkpointer is not None and not is_store_url(checkpointer):
        target = project.import_object(checkpointer)
        is_factory = callable(target) and not isinstance(target, type)
        storage = _require_store(checkpointer, project.call_factory(checkpointer, target) if is_factory else target)
    elif checkpointer is None and own is not None and registry.default is not None:
        storage = _require_store(registry.default.path, own, "has")
    else:
        url = checkpointer or DEFAULT_STORE
        redis_url = config.redis if url.lower().startswith(("postgresql:", "postgres:")) else None
        storage = open_store(resolve_paths(project.folder, url), redis_url=redis_url, encryption=keys_in_environment())
    for served in registry.values():
        if served.workflow.checkpoint_storage not in (None, storage):
            logger.warning(
                "%s has its own storage, which is not used: the server's storage keeps its threads.", served.name
            )
    return storage


def resolve_paths(folder: Path, url: str) -> str:
    """The URL with an absolute path, if it has a relative one."""
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon or len(scheme) == 1:
        return str(folder / url)
    if scheme not in ("sqlite", "file") or "?" in rest or "#" in rest:  # rejected when it is opened
        return url
    path = unquote(rest.removeprefix("///" if scheme == "sqlite" and rest.startswith("///") else "//"))
    if not path or Path(path).is_absolute():
        return url
    absolute = quote((folder / path).as_posix())
    return f"sqlite:///{absolute}" if scheme == "sqlite" else f"file://{absolute}"


def _require_store(path: str, storage: Any, verb: str = "is") -> StoreCheckpointStorage:
    kind = type(storage).__name__
    if isinstance(storage, StoreCheckpointStorage):
        return storage
    if isinstance(storage, type):
        why = f"the class {storage.__name__}, not an object of it. Call it."
    elif isinstance(storage, CheckpointStorage):
        why = (
            f"a custom storage ({kind}) without an event log, so clients could not follow a thread and other servers "
            "could not resume it. Write a Store and use StoreCheckpointStorage(store), or name a URL, such as "
            "sqlite:///perdure.db."
        )
    else:
        why = f"a {kind}, not a storage. Use open_store('sqlite:///threads.db'), or name the URL itself."
    raise NotServable(path, f"{verb} {why}")


def make_authenticator(
    config: ServerConfig, import_object: Callable[[str], Any], environ: Mapping[str, str]
) -> Authenticator | None:
    """The authenticator of a configuration; None without auth. Raises InvalidConfig for unusable or unsafe settings."""
    refuse_mistakes(config, "auth")
    auth, folder = config.auth, Path(config.folder)
    if auth.method == "none":
        return None
    if auth.method == "api_key":
        return ApiKeys(KeyFile(folder / auth.keys_file))
    if auth.method == "jwt":
        from perdure.server.auth.jwt_tokens import JwtTokens

        return JwtTokens(auth, environ, folder)
    path = str(auth.path)
    return CustomAuthenticator(import_object(path), path)


def make_authorizer(config: ServerConfig, import_object: Callable[[str], Any]) -> Authorizer:
    """The authorizer of a configuration. Raises InvalidConfig."""
    settings = config.authorization
    for role, scopes in settings.roles.items():
        check_scopes(scopes, f"authorization.roles.{role}")
    check_scopes(settings.default_scopes, "authorization.default_scopes")
    refuse_mistakes(config, "authorization")
    if settings.backend in ("ownership", "allow_all"):
        return RoleScopes({}, (EVERYTHING,), isolates_owners=settings.backend == "ownership")
    isolates = settings.isolation == "owner"
    if settings.backend == "rbac":
        return RoleScopes(settings.roles, settings.default_scopes, isolates_owners=isolates)
    path = str(settings.path)
    return CustomAuthorizer(import_object(path), path, isolates_owners=isolates)


def check_exposure(config: ServerConfig, storage: object) -> None:
    """Raises InvalidConfig for a server that other machines reach without auth or with threads in memory."""
    innermost = _layers(getattr(storage, "store", None))[-1]
    is_in_memory = type(innermost).__name__ == "MemoryStore"  # by name: the server imports no store
    if is_loopback(config.host):
        if is_in_memory:
            logger.warning(
                "Threads are kept in memory: they are lost when this server stops, and no other server sees them. Set "
                "`checkpointer` to store them, such as sqlite:///perdure.db or postgresql://..."
            )
        return
    if config.auth.method == "none":
        raise invalid(
            "host",
            f'other machines can reach {config.host!r} without auth (auth.method is "none"), so anyone could run and '
            'read everything. The server does not start. Set auth.method to "api_key" (`perdure keys create USER` '
            'creates a key), "jwt" or "custom"; or leave the host at 127.0.0.1.',
        )
    if is_in_memory:
        raise invalid(
            "host",
            f"other machines can reach {config.host!r}, but threads are kept in memory: they are lost when the server "
            "stops. The server does not start. Set checkpointer to sqlite:///perdure.db or postgresql://..., "
            "or leave the host at 127.0.0.1.",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host. A name is resolved now; all its addresses must be loopback."""
    bare = host.strip().removeprefix("[").removesuffix("]").lower()
    if not bare:
        return False  # binds all addresses of the machine
    if bare == "localhost":
        return True
    try:
        entries = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(entry[4][0]) for entry in entries]
    except (OSError, ValueError):
        return False
    own = [(getattr(address, "ipv4_mapped", None) or address).is_loopback for address in addresses]
    return bool(own) and all(own)


def make_limiter(config: ServerConfig, clock: Clock | None = None) -> RateLimiter | None:
    """The rate limiter of a configuration; None: no limit. `clock` is for the limiter in memory.

    Raises InvalidConfig, and MissingExtra for Valkey.
    """
    settings = config.rate_limit
    if settings is None or not settings.enabled:
        return None
    refuse_mistakes(config, "rate_limit")
    if settings.backend == "memory":
        return MemoryLimiter(settings.requests, settings.window, clock=clock)
    return ValkeyLimiter(
        str(config.redis), settings.requests, settings.window, prefix=settings.prefix, fail_open=settings.fail_open
    )
