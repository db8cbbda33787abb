"""Authentication by JSON Web Tokens, which must be signed and expire."""

from __future__ import annotations

import string
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from perdure.errors import MissingExtra
from perdure.server.auth.custom import read_texts, scopes_of
from perdure.server.auth.principal import Credentials, NotAuthenticated, Principal, is_user_id
from perdure.server.config.schema import AuthConfig, invalid

try:
    import jwt
except ImportError as error:
    raise MissingExtra('auth.method "jwt"', "PyJWT", "server") from error

LEEWAY_SECONDS = 10
"""Allowed clock difference between machines."""
LONGEST_TOKEN = 16_384
SHORTEST_SECRET = {"HS256": 32, "HS384": 48, "HS512": 64}
SHORTEST_RSA_BITS = 2048
MIXED_CHARACTERS = 8
NOT_VALID = "The token is not valid."
NO_TOKEN = "This server needs a token: send it as `Authorization: Bearer`."  # noqa: S105  # a sentence
_PLACEHOLDERS = (
    *("replace", "change", "changeit", "changed", "please", "password", "passphrase", "passwd", "secret", "token"),
    *("production", "development", "example", "sample", "default", "should", "never", "super", "least", "characters"),
    *("chars", "bytes", "bits", "string", "signing", "private", "random", "insert", "todo", "your", "this", "that"),
    *("must", "with", "here", "very", "long", "test", "demo", "some", "make", "sure", "jwt", "key", "dev", "the"),
    *("for", "hello", "world", "qwerty", "admin", "value", "not", "use", "bit", "auth", "app", "api", "you", "own"),
    *("agentflow", "perdure", "server", "local", "strong", "safe", "unsafe", "insecure", "keep", "shhh", "xxx"),
)
_FEW_LETTERS = 8


class JwtTokens:
    """Authenticates the tokens that this configuration accepts."""

    def __init__(self, config: AuthConfig, environ: Mapping[str, str], folder: Path) -> None:
        """Raises InvalidConfig for a secret or key that is missing, weak, or of the wrong kind."""
        self._config = config
        self._key = _secret(config, environ) if config.algorithm in SHORTEST_SECRET else _key(config, environ, folder)

    async def authenticate(self, credentials: Credentials) -> Principal:
        token = credentials.token
        if not token:
            raise NotAuthenticated(NO_TOKEN)
        if len(token) > LONGEST_TOKEN or not token.isascii():
            raise NotAuthenticated(NOT_VALID)
        return self._principal(self._claims(token))

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a valid token. Errors give no reason, so that guesses reveal nothing."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=[self._config.algorithm],  # not the token's header
                issuer=self._config.issuer,
                audience=self._config.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp"]},
            )
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated("The token has expired.") from None
        except Exception:  # noqa: BLE001  # decoders raise anything for untrusted input
            raise NotAuthenticated(NOT_VALID) from None
        return claims

    def _principal(self, claims: dict[str, Any]) -> Principal:
        user_id = claims[self._config.user_claim] if self._config.user_claim in claims else claims.get("sub")
        try:
            if not is_user_id(user_id):
                raise ValueError(self._config.user_claim)
            roles = read_texts(claims.get("roles"), "roles") or ()
            scopes = scopes_of(claims["scope"] if "scope" in claims else claims.get("scopes"))
        except ValueError:
            raise NotAuthenticated(NOT_VALID) from None
        return Principal(user_id, roles, scopes, claims)


def _secret(config: AuthConfig, environ: Mapping[str, str]) -> str:
    variable, shortest = config.secret_env, SHORTEST_SECRET[config.algorithm]
    secret = _read_variable(config, environ)
    if "-----BEGIN" in secret:
        raise invalid(
            variable,
            f"this is a key in PEM, but auth.algorithm {config.algorithm} takes a secret: anyone with the public key "
            "could sign tokens. Set auth.algorithm to RS256, ES256 or EdDSA.",
        )
    size = len(secret.encode("utf-8", "surrogateescape"))
    if size < shortest:
        raise invalid(
            variable,
            f"the secret has {size} bytes, but {config.algorithm} needs at least {shortest}: shorter secrets can be "
            f"found by brute force. {_suggest_secret(shortest)}",
        )
    why = weakness_of(secret)
    if why is not None:
        raise invalid(variable, f"the secret {why}, so it can be guessed. {_suggest_secret(shortest)}")
    return secret


def _read_variable(config: AuthConfig, environ: Mapping[str, str]) -> str:
    value = environ.get(config.secret_env, "").strip()
    if not value:
        expected = (
            "the secret" if config.algorithm in SHORTEST_SECRET else "the public key (PEM, or the path of a file)"
        )
        raise invalid(
            config.secret_env,
            f'auth.method is "jwt", but this environment variable (auth.secret_env) does not hold {expected} to check '
            "tokens. The server does not start without it.",
        )
    return value


def _suggest_secret(size: int) -> str:
    return f'Create one: python -c "import secrets; print(secrets.token_urlsafe({size}))"'


def weakness_of(secret: str) -> str | None:
    """Why the secret can be guessed; None if it looks random."""
    if len(set(secret)) < MIXED_CHARACTERS:
        return f"has only {len(set(secret))} different characters"
    if any(secret[period:] == secret[:-period] for period in range(1, len(secret) // 2 + 1)):
        return "repeats itself"
    steps = [ord(after) - ord(before) for before, after in pairwise(secret)]
    if sum(abs(step) == 1 for step in steps) > len(steps) // 2:
        return "counts up or down"
    letters = "".join(letter for letter in secret.lower() if letter in string.ascii_lowercase)
    for word in sorted(_PLACEHOLDERS, key=len, reverse=True):
        letters = letters.replace(word, "")
    letter_count = sum(map(str.isalpha, secret))  # a hexadecimal secret has few
    if len(letters) < _FEW_LETTERS and letter_count > 0 and len(secret) - letter_count <= len(secret) // 2:
        return "consists of placeholder words"
    return None


def _key(config: AuthConfig, environ: Mapping[str, str], folder: Path) -> Any:
    variable, algorithm = config.secret_env, config.algorithm
    value = _read_variable(config, environ)
    if value.startswith("-----BEGIN"):
        pem = value.replace("\\n", "\n")
    else:
        try:
            pem = (folder / value).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            # Without the value: it may be a secret that was meant for another algorithm.
            raise invalid(
                variable,
                f"this is neither a public key in PEM nor the path of a readable file ({type(error).__name__}). "
                "Relative paths begin in the project folder.",
            ) from None
    if "PRIVATE KEY" in pem:
        raise invalid(
            variable,
            "this is a private key. The server only checks tokens and needs the public key, so that an attacker on "
            "the server cannot sign. `openssl pkey -in private.pem -pubout` prints it.",
        )
    if not jwt.algorithms.has_crypto:
        raise MissingExtra(f"auth.algorithm {algorithm}", "cryptography", "crypto")
    try:
        key = jwt.get_algorithm_by_name(algorithm).prepare_key(pem)
    except Exception:  # noqa: BLE001  # libraries raise different errors, and the text may hold a part of a key
        raise invalid(
            variable,
            f"this is not a public key for {algorithm}: expected PEM that begins with -----BEGIN PUBLIC KEY-----, or "
            "the path of such a file.",
        ) from None
    if getattr(key, "key_size", SHORTEST_RSA_BITS) < SHORTEST_RSA_BITS and algorithm == "RS256":
        raise invalid(variable, f"the key has {key.key_size} bits, but RS256 needs at least {SHORTEST_RSA_BITS}.")
    return key
