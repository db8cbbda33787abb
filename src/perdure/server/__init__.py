"""The server: configuration, HTTP API, durable threads. Each name is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.names import homes_of, lazy_exports

if TYPE_CHECKING:
    from perdure.server.auth.api_keys import (
        ApiKeys as ApiKeys,
        KeyFile as KeyFile,
        make_key as make_key,
        revoke_key as revoke_key,
    )
    from perdure.server.auth.custom import CustomAuthenticator as CustomAuthenticator
    from perdure.server.auth.jwt_tokens import JwtTokens as JwtTokens
    from perdure.server.auth.principal import (
        Credentials as Credentials,
        NotAuthenticated as NotAuthenticated,
        Principal as Principal,
    )
    from perdure.server.config.files import load_config as load_config
    from perdure.server.config.schema import (
        AuthConfig as AuthConfig,
        AuthorizationConfig as AuthorizationConfig,
        InvalidConfig as InvalidConfig,
        NotImportable as NotImportable,
        NotServable as NotServable,
        ServerConfig as ServerConfig,
    )
    from perdure.server.factory import make_authorizer as make_authorizer
    from perdure.server.http.app import create_app as create_app
    from perdure.server.http.middleware import ServerApp as ServerApp
    from perdure.server.metrics import Metrics as Metrics
    from perdure.server.rate_limit import client_address as client_address
    from perdure.server.uvicorn import serve as serve

_HOME = homes_of(
    {
        "perdure.server.factory": "make_authorizer",
        "perdure.server.uvicorn": "serve",
        "perdure.server.auth.api_keys": "ApiKeys KeyFile make_key revoke_key",
        "perdure.server.auth.custom": "CustomAuthenticator",
        "perdure.server.auth.jwt_tokens": "JwtTokens",
        "perdure.server.auth.principal": "Credentials NotAuthenticated Principal",
        "perdure.server.config.files": "load_config",
        "perdure.server.config.schema": (
            "AuthConfig AuthorizationConfig InvalidConfig NotImportable NotServable ServerConfig"
        ),
        "perdure.server.http.app": "create_app",
        "perdure.server.http.middleware": "ServerApp",
        "perdure.server.metrics": "Metrics",
        "perdure.server.rate_limit": "client_address",
    }
)

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
