"""A service made from its configuration: what is named is imported, what is wrong is told before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.server.app.project import Project
from perdure.server.app.registry import Registry
from perdure.server.app.service import Check, Service
from perdure.server.app.storage import storage_of
from perdure.server.auth.authenticators import check_exposure, make_authenticator
from perdure.server.auth.authorizers import make_authorizer
from perdure.server.config.schema import ServerConfig
from perdure.server.metrics import Metrics
from perdure.server.rate_limit.factory import make_limiter
from perdure.server.threads.naming import make_naming


def make_service(config: ServerConfig, environ: Mapping[str, str] = os.environ) -> Service:
    """Raises InvalidConfig, NotImportable, NotServable."""
    project = Project(config.folder)
    project.put_first()
    registry = Registry.of(config, project)
    storage = storage_of(config, project, registry)
    check_exposure(config, storage)
    naming = None
    if config.thread_name_generator is not None:
        found = project.import_object(config.thread_name_generator)
        naming = make_naming(config.thread_name_generator, found, storage)
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
    """PostgreSQL and Redis by themselves: each can be away."""

    async def ask_storage() -> object:
        async with storage.access("ask whether it is there"):
            return await storage.store.thread_ids(limit=1)

    names = [type(one).__name__ for one in _layers(storage.store)]
    found: dict[str, Check] = {"postgresql" if "PostgresStore" in names else "storage": ask_storage}
    ping = next((one.ping for one in _layers(storage.store) if hasattr(one, "ping")), None)
    if ping is not None:
        found["redis"] = ping
    elif config.redis is not None:
        from perdure.server.rate_limit.valkey import ping_of

        found["redis"] = ping_of(config.redis)
    return found


def _layers(store: object) -> list[object]:
    """A store and those under it: encryption and Valkey are layers over one."""
    layers = [store]
    while (under := getattr(layers[-1], "inner", None)) is not None:
        layers.append(under)
    return layers
