"""Secrets and keys with which a server does not start: missing, short, guessable, or of another kind."""

from __future__ import annotations

import base64
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.chance import draw_seed

from perdure.server.auth.jwt_tokens import JwtTokens, weakness_of
from perdure.server.config.schema import AuthConfig, InvalidConfig


def why_not(secret: str | None, algorithm: Any = "HS256", folder: Path | None = None, **config: Any) -> str:
    """Returns why the server does not start, or an empty text if it does."""
    environ = {} if secret is None else {config.get("secret_env", "JWT_SECRET_KEY"): secret}
    try:
        JwtTokens(AuthConfig(method="jwt", algorithm=algorithm, **config), environ, folder or Path())
    except InvalidConfig as problem:
        message = str(problem)
    else:
        return ""
    assert secret is None or not secret.strip() or secret not in message
    return message


@pytest.mark.parametrize("secret", [None, "", "  \n"])
def test_missing_secret_error_names_the_variable(secret: str | None) -> None:
    assert why_not(secret, secret_env="MY_SECRET").startswith("MY_SECRET: auth.method is")


@pytest.mark.parametrize(("algorithm", "size"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_secret_needs_as_many_bytes_as_its_hash(algorithm: str, size: int) -> None:
    secret = random.Random(1).randbytes(64).hex()
    assert f"has {size - 1} bytes, but {algorithm} needs at least {size}" in why_not(secret[: size - 1], algorithm)
    assert why_not(secret[:size], algorithm) == ""


@pytest.mark.parametrize(
    "secret",
    [
        *(
            "a" * 32,
            "0" * 64,
            "ab" * 20,
            "secret" * 6,
            "changeme" * 5,
            "changemechangemechangemechangem",
            "password" * 4,
        ),
        "12345678901234567890123456789012",
        "abcdefghijklmnopqrstuvwxyz0123456789",
        "your-256-bit-secret-your-256-bit-secret",
        "your-super-secret-jwt-key-change-this-in-production",
        "a-string-secret-at-least-256-bits-long",
        "please-change-me-please-change-me!!!",
        "this_is_a_very_long_secret_key_for_testing_12345",
        "CHANGE_ME_TO_A_LONG_RANDOM_STRING_32_CHARS",
        "supersecretsupersecretsupersecretsuper",
    ],
)
def test_guessable_secret_is_rejected(secret: str) -> None:
    assert "can be guessed" in why_not(secret.ljust(32, secret[0]))


def test_random_secrets_are_not_weak() -> None:
    chance = random.Random(draw_seed())
    for _ in range(500):
        for secret in (
            base64.urlsafe_b64encode(chance.randbytes(32)).decode().rstrip("="),
            chance.randbytes(16).hex(),
            chance.randbytes(32).hex(),
            f"{uuid.UUID(int=chance.getrandbits(128))}{uuid.UUID(int=chance.getrandbits(128))}",
            str(chance.getrandbits(256)).zfill(78)[-64:],
        ):
            assert weakness_of(secret) is None, secret


def test_public_key_as_hmac_secret_is_rejected() -> None:
    assert "this is a key in PEM, but auth.algorithm HS256" in why_not(pem(rsa_key().public_key()))


def rsa_key(bits: int = 2048) -> Any:
    return rsa.generate_private_key(65537, bits)


def pem(key: Any) -> str:
    if hasattr(key, "public_bytes"):
        return str(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())
    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def test_private_key_is_rejected_as_text_and_as_a_file(tmp_path: Path) -> None:
    private = pem(rsa_key())
    assert "this is a private key. The server only checks tokens" in why_not(private, "RS256")
    (tmp_path / "key.pem").write_text(private)
    assert "this is a private key" in why_not("key.pem", "RS256", tmp_path)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_key_of_another_kind_is_rejected(algorithm: str) -> None:
    other = pem(ec.generate_private_key(ec.SECP384R1()).public_key())
    assert f"this is not a public key for {algorithm}" in why_not(other, algorithm)
    broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"
    assert f"this is not a public key for {algorithm}" in why_not(broken, algorithm)


def test_short_rsa_key_is_rejected() -> None:
    assert "the key has 1024 bits, but RS256 needs at least 2048" in why_not(pem(rsa_key(1024).public_key()), "RS256")


@pytest.mark.parametrize("key", ["nowhere.pem", "a secret that was meant for HS256", "\x00", "x" * 5000])
def test_value_that_is_neither_key_nor_file_is_rejected_and_not_shown(key: str, tmp_path: Path) -> None:
    assert "neither a public key in PEM nor the path" in why_not(key, "RS256", tmp_path)
