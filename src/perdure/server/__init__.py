"""The service: configuration, HTTP API, threads that last. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.lazy import lazily

if TYPE_CHECKING:
    from perdure.server.app.uvicorn import serve as serve
    from perdure.server.auth.principal import Credentials as Credentials, Principal as Principal
    from perdure.server.config.errors import (
        InvalidConfig as InvalidConfig,
        NotImportable as NotImportable,
        NotServable as NotServable,
    )
    from perdure.server.config.files import load_config as load_config
    from perdure.server.config.schema import ServerConfig as ServerConfig
    from perdure.server.http.app import ServerApp as ServerApp, create_app as create_app

_HOMES = {
    "Credentials": "perdure.server.auth.principal",
    "InvalidConfig": "perdure.server.config.errors",
    "NotImportable": "perdure.server.config.errors",
    "NotServable": "perdure.server.config.errors",
    "Principal": "perdure.server.auth.principal",
    "ServerApp": "perdure.server.http.app",
    "ServerConfig": "perdure.server.config.schema",
    "create_app": "perdure.server.http.app",
    "load_config": "perdure.server.config.files",
    "serve": "perdure.server.app.uvicorn",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:  # checkers take the imports above
    __getattr__, __dir__ = lazily(__name__, _HOMES)
