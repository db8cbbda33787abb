"""What a server is told: one frozen Struct for each part of `perdure.json`. Reading files is done elsewhere."""

from __future__ import annotations

from typing import Literal

import msgspec


class ConfigPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A part of the configuration; a key that it does not have is refused."""


class AuthConfig(ConfigPart, frozen=True):
    """Who may come in."""

    method: Literal["none", "api_key", "jwt", "custom"] = "none"
    path: str | None = None
    """`custom`: the `module:attribute` that tells who sends a request."""
    keys_file: str = ".perdure-keys.json"
    """`api_key`: the file that `perdure keys` writes, below the project folder. It holds hashes."""
    algorithm: Literal["HS256", "HS384", "HS512", "RS256", "ES256", "EdDSA"] = "HS256"
    """`jwt`: the only one that is accepted."""
    secret_env: str = "JWT_SECRET_KEY"  # noqa: S105  # the name of a variable, not a secret
    """`jwt`: the environment variable with the secret, or the public key. The secret never stands in a file."""
    issuer: str | None = None
    audience: str | None = None
    user_claim: str = "user_id"
    """`jwt`: the claim that names the user; `sub` is taken where it is missing."""


class AuthorizationConfig(ConfigPart, frozen=True):
    """What those who are in may do."""

    backend: Literal["ownership", "allow_all", "rbac", "custom"] = "ownership"
    """`ownership`: all, with their own threads. `rbac`: what their roles say. `allow_all`: all, with all threads."""
    roles: dict[str, tuple[str, ...]] = {}
    """`rbac`: scopes by role, such as `graph:invoke`; `*` is all of them."""
    default_scopes: tuple[str, ...] = ()
    """`rbac`: of those who have no role that is named."""
    isolation: Literal["owner", "none"] = "owner"
    """`owner`: each user has threads of their own. `none`: all threads belong to all."""
    path: str | None = None
    """`custom`: the `module:attribute` that decides."""


class RateLimitConfig(ConfigPart, frozen=True):
    """How often somebody may ask."""

    enabled: bool = True
    backend: Literal["memory", "redis"] = "memory"
    requests: int = 100
    window: float = 60.0
    """Seconds."""
    by: Literal["ip", "user", "global"] = "ip"
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks whose `X-Forwarded-For` is believed."""
    exclude_paths: tuple[str, ...] = ()
    fail_open: bool = True
    """Whether requests go through while Valkey is away."""
    prefix: str = "perdure:rate-limit"


class CorsConfig(ConfigPart, frozen=True):
    """Which web pages of other origins may call; none unless told."""

    origins: tuple[str, ...] = ()
    allow_credentials: bool = False


class LimitsConfig(ConfigPart, frozen=True):
    """How much at most."""

    max_request_bytes: int = 10_000_000
    max_runs: int = 100
    """Runs at the same time in this process."""
    max_waiting: int = 1000
    """Runs that wait for one of these to end; one more is refused with 429."""
    max_streams: int = 5000
    """Event streams and sockets that are open at the same time."""
    request_seconds: float = 300.0
    """How long `invoke` waits for its run; the run itself goes on."""
    body_seconds: float = 30.0
    """How long a request's body may take to arrive."""
    shutdown_seconds: float = 10.0
    """How long supersteps may take to finish when the server is stopped."""


class ServerConfig(ConfigPart, frozen=True):
    """All of it. Every key can be set by an environment variable: `PERDURE_AGENT`, `PERDURE_AUTH__METHOD`, ..."""

    agent: str | None = None
    """`module:attribute` of the workflow or agent that runs where none is named."""
    workflows: dict[str, str] = {}
    """More of them, by the name that clients use."""
    checkpointer: str | None = None
    """`module:attribute` of a storage, or a storage URL. Without it: that of `agent`, or `sqlite:///perdure.db`."""
    env: str | None = None
    """A file of environment variables, read before anything is imported; what is set already stays."""
    auth: AuthConfig = AuthConfig()
    authorization: AuthorizationConfig = AuthorizationConfig()
    rate_limit: RateLimitConfig | None = None
    redis: str | None = None
    """URL of a Valkey or Redis: wake-ups for a storage URL of PostgreSQL, and rate limits."""
    thread_name_generator: str | None = None
    """`module:attribute` of something with `async generate_name(messages)`, or of such a function."""
    cors: CorsConfig = CorsConfig()
    limits: LimitsConfig = LimitsConfig()
    mode: Literal["development", "production"] = "development"
    """In production, errors of users' code are told by their id only, and there is no documentation page."""
    host: str = "127.0.0.1"
    port: int = 8000
    root_path: str = ""
    """The path below which a proxy shows it."""
    folder: str = "."
    """The project: what is importable, and what paths are relative to. Set by the loader."""
