"""JSON Web Tokens: signed by somebody who knows the secret or the private key, and with an end."""

from __future__ import annotations

import string
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from perdure.errors import MissingExtra
from perdure.server.auth.custom import scopes_of, texts
from perdure.server.auth.principal import Credentials, NotAuthenticated, Principal, is_user_id
from perdure.server.config.errors import invalid
from perdure.server.config.schema import AuthConfig

try:
    import jwt
except ImportError as error:
    raise MissingExtra('auth.method "jwt"', "PyJWT", "server") from error

LEEWAY_SECONDS = 10
"""By which clocks of two machines may differ."""
LONGEST_TOKEN = 16_384
SHORTEST_SECRET = {"HS256": 32, "HS384": 48, "HS512": 64}
SHORTEST_RSA_BITS = 2048
MIXED_CHARACTERS = 8
NOT_VALID = "The token is not valid."
NO_TOKEN = "This server wants a token: send it as `Authorization: Bearer`."  # noqa: S105  # a sentence
_PLACEHOLDERS = (
    *("replace", "change", "changeit", "changed", "please", "password", "passphrase", "passwd", "secret", "token"),
    *("production", "development", "example", "sample", "default", "should", "never", "super", "least", "characters"),
    *("chars", "bytes", "bits", "string", "signing", "private", "random", "insert", "todo", "your", "this", "that"),
    *(
        "must",
        "with",
        "here",
        "very",
        "long",
        "test",
        "demo",
        "some",
        "make",
        "sure",
        "jwt",
        "key",
        "dev",
        "the",
        "for",
    ),
    *(
        "hello",
        "world",
        "qwerty",
        "admin",
        "value",
        "not",
        "use",
        "bit",
        "auth",
        "app",
        "api",
        "you",
        "own",
        "agentflow",
    ),
    *("perdure", "server", "local", "strong", "safe", "unsafe", "insecure", "keep", "shhh", "xxx"),
)
_FEW_LETTERS = 8


class JwtTokens:
    """Knows those who bring a token that this configuration accepts."""

    def __init__(self, config: AuthConfig, environ: Mapping[str, str], folder: Path) -> None:
        """Raises InvalidConfig for a secret or key that is missing, weak, or of another kind."""
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
        """Neither the token nor what is wrong with it is told: whoever tries tokens learns nothing."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=[self._config.algorithm],  # whatever the token's header says
                issuer=self._config.issuer,
                audience=self._config.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp"]},
            )
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated("The token has expired.") from None
        except Exception:  # noqa: BLE001  # whatever a decoder does with what strangers send
            raise NotAuthenticated(NOT_VALID) from None
        return claims

    def _principal(self, claims: dict[str, Any]) -> Principal:
        user_id = claims[self._config.user_claim] if self._config.user_claim in claims else claims.get("sub")
        try:
            if not is_user_id(user_id):
                raise ValueError(self._config.user_claim)
            roles = texts(claims.get("roles"), "roles") or ()
            scopes = scopes_of(claims["scope"] if "scope" in claims else claims.get("scopes"))
        except ValueError:
            raise NotAuthenticated(NOT_VALID) from None
        return Principal(user_id, roles, scopes, claims)


# ---------------------------------------------------------------- secrets


def _secret(config: AuthConfig, environ: Mapping[str, str]) -> str:
    variable, shortest = config.secret_env, SHORTEST_SECRET[config.algorithm]
    secret = _given(config, environ)
    if "-----BEGIN" in secret:
        raise invalid(
            variable,
            f"this is a key in PEM, and auth.algorithm is {config.algorithm}, which takes a secret: whoever has the "
            "public key could sign tokens. Set auth.algorithm to RS256, ES256 or EdDSA.",
        )
    size = len(secret.encode("utf-8", "surrogateescape"))
    if size < shortest:
        raise invalid(
            variable,
            f"the secret has {size} bytes, and {config.algorithm} needs {shortest} at least: shorter ones are found by "
            f"trying. {_how_to_make(shortest)}",
        )
    why = weakness_of(secret)
    if why is not None:
        raise invalid(variable, f"the secret {why}, so that it can be guessed. {_how_to_make(shortest)}")
    return secret


def _given(config: AuthConfig, environ: Mapping[str, str]) -> str:
    given = environ.get(config.secret_env, "").strip()
    if not given:
        what = "the secret" if config.algorithm in SHORTEST_SECRET else "the public key (PEM, or the path of a file)"
        raise invalid(
            config.secret_env,
            f'auth.method is "jwt", and this environment variable (auth.secret_env) does not hold {what} with which '
            "tokens are checked. The server does not start without.",
        )
    return given


def _how_to_make(size: int) -> str:
    return f'Make one: python -c "import secrets; print(secrets.token_urlsafe({size}))"'


def weakness_of(secret: str) -> str | None:
    """Why somebody would think of it; None if it looks random."""
    if len(set(secret)) < MIXED_CHARACTERS:
        return f"is made of {len(set(secret))} different characters"
    if any(_repeats(secret, period) for period in range(1, len(secret) // 2 + 1)):
        return "repeats itself"
    steps = [ord(after) - ord(before) for before, after in pairwise(secret)]
    if sum(abs(step) == 1 for step in steps) > len(steps) // 2:
        return "counts up or down"
    letters = "".join(one for one in secret.lower() if one in string.ascii_lowercase)
    for word in sorted(_PLACEHOLDERS, key=len, reverse=True):
        letters = letters.replace(word, "")
    if len(letters) < _FEW_LETTERS and any(one.isalpha() for one in secret) and not _has_digits_enough(secret):
        return "is made of words that stand for a secret"
    return None


def _has_digits_enough(secret: str) -> bool:
    """A secret in hexadecimal digits has few letters, too."""
    return sum(not one.isalpha() for one in secret) > len(secret) // 2


def _repeats(text: str, period: int) -> bool:
    return all(text[at] == text[at - period] for at in range(period, len(text)))


# ---------------------------------------------------------------- keys


def _key(config: AuthConfig, environ: Mapping[str, str], folder: Path) -> Any:
    variable, algorithm = config.secret_env, config.algorithm
    given = _given(config, environ)
    pem = given.replace("\\n", "\n") if given.startswith("-----BEGIN") else _read(variable, folder, given)
    if "PRIVATE KEY" in pem:
        raise invalid(
            variable,
            "this is a private key. The server only checks tokens, and needs the public key: whoever breaks into it "
            "must not be able to sign. `openssl pkey -in private.pem -pubout` prints it.",
        )
    if not jwt.algorithms.has_crypto:
        raise MissingExtra(f"auth.algorithm {algorithm}", "cryptography", "crypto")
    try:
        key = jwt.get_algorithm_by_name(algorithm).prepare_key(pem)
    except Exception:  # noqa: BLE001  # each library has its own; and the text may be part of a key
        raise invalid(
            variable,
            f"this is no public key for {algorithm}: expected PEM that begins with -----BEGIN PUBLIC KEY-----, or the "
            "path of such a file.",
        ) from None
    if getattr(key, "key_size", SHORTEST_RSA_BITS) < SHORTEST_RSA_BITS and algorithm == "RS256":
        raise invalid(variable, f"the key has {key.key_size} bits, and RS256 needs {SHORTEST_RSA_BITS} at least.")
    return key


def _read(variable: str, folder: Path, path: str) -> str:
    try:
        return (folder / path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        # Without the text: what is no path may be a secret that was meant for another algorithm.
        raise invalid(
            variable,
            f"this is neither a public key in PEM nor the path of a file that can be read ({type(error).__name__}). A "
            "relative path begins in the project folder.",
        ) from None
