"""The service: configuration, HTTP API, threads that last. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.lazy import lazily

if TYPE_CHECKING:
    from perdure.server.auth.principal import Credentials as Credentials, Principal as Principal
    from perdure.server.config import ServerConfig as ServerConfig
    from perdure.server.config_errors import (
        InvalidConfig as InvalidConfig,
        NotImportable as NotImportable,
        NotServable as NotServable,
    )
    from perdure.server.config_files import load_config as load_config
    from perdure.server.http.app import ServerApp as ServerApp, create_app as create_app
    from perdure.server.serving import serve as serve

_HOMES = {
    "Credentials": "perdure.server.auth.principal",
    "InvalidConfig": "perdure.server.config_errors",
    "NotImportable": "perdure.server.config_errors",
    "NotServable": "perdure.server.config_errors",
    "Principal": "perdure.server.auth.principal",
    "ServerApp": "perdure.server.http.app",
    "ServerConfig": "perdure.server.config",
    "create_app": "perdure.server.http.app",
    "load_config": "perdure.server.config_files",
    "serve": "perdure.server.serving",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:  # checkers take the imports above
    __getattr__, __dir__ = lazily(__name__, _HOMES)
