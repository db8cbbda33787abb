"""The configuration of a server: one frozen Struct for each part of `perdure.json`, and its errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from perdure.errors import PerdureError

Count: TypeAlias = Annotated[int, Meta(ge=1, description="1 or more")]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=sys.float_info.max, description="a number of seconds, more than 0")]
FileName: TypeAlias = Annotated[str, Meta(pattern=r"\S", description="the name of a file")]
VariableName: TypeAlias = Annotated[
    str, Meta(pattern=r"^(?a:[^\W\d]\w*)\Z", description="the name of an environment variable")
]
ClaimName: TypeAlias = Annotated[str, Meta(min_length=1, description="the name of a claim")]
Scope: TypeAlias = Annotated[
    str, Meta(pattern=r"^(\*|[\w-]+:([\w-]+|\*))\Z", description="a scope such as 'graph:invoke' or '*'")
]
UrlPath: TypeAlias = Annotated[str, Meta(pattern="^/", description="a path that begins with '/'")]
Port: TypeAlias = Annotated[int, Meta(ge=0, lt=65536, description="a port from 1 to 65535, or 0 for a free one")]
Host: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^[\w.:%\[\]-]+\Z", description="an address or a name of this machine, without a scheme"),
]


class ConfigPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A part of the configuration. Unknown keys are errors."""


class AuthConfig(ConfigPart, frozen=True):
    """Authentication."""

    method: Literal["none", "api_key", "jwt", "custom"] = "none"
    path: str | None = None
    """`custom`: the `module:attribute` that authenticates a request."""
    keys_file: FileName = ".perdure-keys.json"
    """`api_key`: the file that `perdure keys` writes, below the project folder. It holds hashes."""
    algorithm: Literal["HS256", "HS384", "HS512", "RS256", "ES256", "EdDSA"] = "HS256"
    """`jwt`: the only accepted algorithm."""
    secret_env: VariableName = "JWT_SECRET_KEY"  # noqa: S105  # the name of a variable, not a secret
    """`jwt`: the environment variable with the secret or the public key. Files never contain the secret."""
    issuer: str | None = None
    audience: str | None = None
    user_claim: ClaimName = "user_id"
    """`jwt`: the claim with the user id; `sub` is the fallback."""


class AuthorizationConfig(ConfigPart, frozen=True):
    """Authorization."""

    backend: Literal["ownership", "allow_all", "rbac", "custom"] = "ownership"
    """`ownership`: all scopes, own threads. `rbac`: scopes by role. `allow_all`: all scopes, all threads."""
    roles: dict[str, tuple[Scope, ...]] = {}
    """`rbac`: scopes by role, such as `graph:invoke`; `*` grants all scopes."""
    default_scopes: tuple[Scope, ...] = ()
    """`rbac`: of users without a configured role."""
    isolation: Literal["owner", "none"] = "owner"
    """`owner`: each user has separate threads. `none`: all users share all threads."""
    path: str | None = None
    """`custom`: the `module:attribute` that authorizes."""


class RateLimitConfig(ConfigPart, frozen=True):
    """The rate limit."""

    enabled: bool = True
    backend: Literal["memory", "redis"] = "memory"
    requests: Count = 100
    window: Seconds = 60.0
    """Seconds."""
    by: Literal["ip", "user", "global"] = "ip"
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks whose `X-Forwarded-For` is trusted."""
    exclude_paths: tuple[UrlPath, ...] = ()
    fail_open: bool = True
    """Whether requests are allowed while Valkey is unreachable."""
    prefix: str = "perdure:rate-limit"


class CorsConfig(ConfigPart, frozen=True):
    """Web pages of other origins that may call the server; none by default."""

    origins: tuple[str, ...] = ()
    allow_credentials: bool = False


class LimitsConfig(ConfigPart, frozen=True):
    """Limits."""

    max_request_bytes: Count = 10_000_000
    max_runs: Count = 100
    """Concurrent runs in this process."""
    max_waiting: Annotated[int, Meta(ge=0, description="0 or more")] = 1000
    """Queued runs; a further run gets a 429."""
    max_streams: Count = 5000
    """Open event streams and sockets."""
    request_seconds: Seconds = 300.0
    """How long `invoke` waits for its run. The run continues after that."""
    body_seconds: Seconds = 30.0
    """How long a request's body may take to arrive."""
    shutdown_seconds: Seconds = 10.0
    """How long supersteps may take to finish when the server stops."""


class ServerConfig(ConfigPart, frozen=True):
    """The whole configuration. Environment variables override keys: `PERDURE_AGENT`, `PERDURE_AUTH__METHOD`, ..."""

    agent: str | None = None
    """`module:attribute` of the default workflow or agent."""
    workflows: dict[str, str] = {}
    """Further workflows by public name."""
    checkpointer: str | None = None
    """`module:attribute` of a storage, or a storage URL. Default: that of `agent`, or `sqlite:///perdure.db`."""
    env: str | None = None
    """A file of environment variables, read before any import. Variables that are set win."""
    auth: AuthConfig = AuthConfig()
    authorization: AuthorizationConfig = AuthorizationConfig()
    rate_limit: RateLimitConfig | None = None
    redis: str | None = None
    """URL of a Valkey or Redis: notifications for PostgreSQL storages, and rate limits."""
    thread_name_generator: str | None = None
    """`module:attribute` of an object with `async generate_name(messages)`, or of such a function."""
    cors: CorsConfig = CorsConfig()
    limits: LimitsConfig = LimitsConfig()
    mode: Literal["development", "production"] = "development"
    """In production, responses hide errors of user code, and the documentation page is off."""
    host: Host = "127.0.0.1"
    port: Port = 8000
    root_path: str = ""
    """The path prefix of a proxy."""
    folder: str = "."
    """The project folder: imports and relative paths begin there. Set by the loader."""


class ConfigProblem(NamedTuple):
    """One mistake and its location, without secrets."""

    source: str | None
    """The file; None for an environment variable."""
    place: str
    """The key, such as `auth.method`, or the variable, such as `PERDURE_AUTH__METHOD`."""
    sentence: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.place, self.sentence) if part)


class InvalidConfig(PerdureError, ValueError):
    """An unusable configuration: all mistakes, one per line."""

    code = "invalid_config"

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class NotImportable(PerdureError, ImportError):
    """An object that the configuration names cannot be imported."""

    code = "not_importable"

    def __init__(self, named: str, sentence: str) -> None:
        self.named = named
        super().__init__(f"{named!r} cannot be imported: {sentence}")


class NotServable(PerdureError, TypeError):
    """An object that the configuration names is not usable by a server."""

    code = "not_servable"

    def __init__(self, named: str, sentence: str) -> None:
        self.named = named
        super().__init__(f"{named!r} {sentence}")


def invalid(place: str, sentence: str) -> InvalidConfig:
    """An error with one mistake. `place`: the key, such as `auth.path`, the environment variable, or the file."""
    return InvalidConfig([ConfigProblem(None, place, sentence)])
