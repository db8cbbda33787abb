"""The service: configuration, HTTP API, threads that last. The names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.server.auth.principal import Credentials as Credentials, Principal as Principal
    from holdfast.server.config import ServerConfig as ServerConfig
    from holdfast.server.config_errors import (
        InvalidConfig as InvalidConfig,
        NotImportable as NotImportable,
        NotServable as NotServable,
    )
    from holdfast.server.config_files import load_config as load_config
    from holdfast.server.http.app import ServerApp as ServerApp, create_app as create_app
    from holdfast.server.serving import serve as serve

_HOMES = {
    "Credentials": "holdfast.server.auth.principal",
    "InvalidConfig": "holdfast.server.config_errors",
    "NotImportable": "holdfast.server.config_errors",
    "NotServable": "holdfast.server.config_errors",
    "Principal": "holdfast.server.auth.principal",
    "ServerApp": "holdfast.server.http.app",
    "ServerConfig": "holdfast.server.config",
    "create_app": "holdfast.server.http.app",
    "load_config": "holdfast.server.config_files",
    "serve": "holdfast.server.serving",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:  # checkers take the imports above
    __getattr__, __dir__ = lazily(__name__, _HOMES)
