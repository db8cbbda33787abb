"""JSON Web Tokens: the user of a token, and attacks with tokens of another signer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.unit.server.auth.credentials import refusal, with_key, with_token

from perdure.server.auth.jwt_tokens import LEEWAY_SECONDS, NO_TOKEN, NOT_VALID, JwtTokens
from perdure.server.auth.principal import Credentials
from perdure.server.config.schema import AuthConfig

SECRET, ANOTHER_SECRET = (random.Random(number).randbytes(64).hex() for number in (1, 2))
EXPIRED = "The token has expired."


def tokens(secret: str = SECRET, **config: Any) -> JwtTokens:
    return JwtTokens(AuthConfig(method="jwt", **config), {"JWT_SECRET_KEY": secret}, Path())


def claims(**more: Any) -> dict[str, Any]:
    """Returns the claims of a valid token, without those that are None."""
    whole = {"user_id": "ada", "exp": int(time.time()) + 60, **more}
    return {name: value for name, value in whole.items() if value is not None}


def signed(secret: Any = SECRET, algorithm: Any = "HS256", **more: Any) -> str:
    return jwt.encode(claims(**more), secret, algorithm)


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def made_by_hand(header: dict[str, Any], secret: bytes, **more: Any) -> str:
    """Returns a token that is signed with HMAC and these bytes, which a library would reject."""
    body = f"{part(header)}.{part(claims(**more))}"
    return f"{body}.{part(hmac.new(secret, body.encode(), hashlib.sha256).digest())}"


@cache
def key_pair(kind: str) -> tuple[str, str]:
    """The private and the public key, in PEM."""
    private: Any = {
        "RS256": lambda: rsa.generate_private_key(65537, 2048),
        "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate,
    }[kind]()
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), public.decode()


# ---------------------------------------------------------------- who is known


async def test_token_names_its_user_roles_and_scopes() -> None:
    token = signed(roles=["operator", "auditor"], scope="graph:invoke graph:read", team="red")
    known = await tokens().authenticate(with_token(token))
    assert (known.user_id, known.roles) == ("ada", ("operator", "auditor"))
    assert known.scopes == frozenset({"graph:invoke", "graph:read"})
    assert known.claims["team"] == "red"


@pytest.mark.parametrize(
    ("more", "scopes"),
    [
        ({}, None),
        ({"scopes": ["graph:read"]}, {"graph:read"}),
        ({"scopes": "graph:read graph:stop"}, {"graph:read", "graph:stop"}),
        ({"scope": ""}, set()),
        ({"scope": "graph:read", "scopes": ["*"]}, {"graph:read"}),
    ],
)
async def test_scopes_come_from_the_token_and_none_means_no_limit(more: Any, scopes: Any) -> None:
    assert (await tokens().authenticate(with_token(signed(**more)))).scopes == scopes


async def test_sub_is_the_user_when_the_user_claim_is_missing() -> None:
    assert (await tokens().authenticate(with_token(signed(user_id=None, sub="bob")))).user_id == "bob"
    assert (await tokens().authenticate(with_token(signed(sub="bob")))).user_id == "ada"
    principal = await tokens(user_claim="email").authenticate(with_token(signed(email="c@example.org", sub="bob")))
    assert principal.user_id == "c@example.org"


@pytest.mark.parametrize("user_id", ["", "  ", 7, True, [], {"a": 1}, "a\nb", "a" * 256, "\x00"])
async def test_invalid_user_claim_is_rejected_even_with_a_sub(user_id: Any) -> None:
    assert await refusal(tokens(), with_token(signed(user_id=user_id, sub="bob"))) == NOT_VALID


@pytest.mark.parametrize(
    "more", [{"roles": "admin"}, {"roles": [1]}, {"roles": {"a": 1}}, {"scope": 1}, {"scopes": [None]}]
)
async def test_roles_and_scopes_of_another_type_are_rejected(more: Any) -> None:
    assert await refusal(tokens(), with_token(signed(**more))) == NOT_VALID


async def test_missing_token_error_explains_how_to_send_a_token() -> None:
    assert await refusal(tokens(), Credentials(headers={})) == NO_TOKEN
    assert await refusal(tokens(), with_key(signed())) == NO_TOKEN  # a token is no API key


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("form", ["text", "one line", "file"])
async def test_public_key_can_be_a_text_or_a_file(kind: Any, form: str, tmp_path: Path) -> None:
    private, public = key_pair(kind)
    (tmp_path / "public.pem").write_text(public)
    key = {"text": public, "one line": public.replace("\n", "\\n"), "file": "public.pem"}[form]
    known = JwtTokens(AuthConfig(method="jwt", algorithm=kind), {"JWT_SECRET_KEY": key}, tmp_path)
    assert (await known.authenticate(with_token(signed(private, kind)))).user_id == "ada"
    stranger = ed25519.Ed25519PrivateKey.generate()
    assert await refusal(known, with_token(signed(stranger, "EdDSA"))) == NOT_VALID


# ---------------------------------------------------------------- time


async def test_token_expires_after_its_leeway_and_must_have_an_expiry() -> None:
    now = int(time.time())
    assert await refusal(tokens(), with_token(signed(exp=now - LEEWAY_SECONDS - 1))) == EXPIRED
    assert await refusal(tokens(), with_token(signed(exp=now - LEEWAY_SECONDS + 5))) == ""
    assert await refusal(tokens(), with_token(signed(exp=None))) == NOT_VALID


@pytest.mark.parametrize("exp", ["soon", [], {}, float("inf"), float("nan"), True])
async def test_expiry_that_is_not_a_time_is_rejected(exp: Any) -> None:
    body = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims(exp=exp))}"
    signature = hmac.new(SECRET.encode(), body.encode(), hashlib.sha256).digest()
    assert await refusal(tokens(), with_token(f"{body}.{part(signature)}")) in (NOT_VALID, EXPIRED)


@pytest.mark.parametrize("claim", ["nbf", "iat"])
async def test_token_from_the_future_is_rejected(claim: str) -> None:
    later = int(time.time()) + 3600
    early: dict[str, Any] = {claim: later}
    assert await refusal(tokens(), with_token(signed(exp=later + 60, **early))) == NOT_VALID


# ---------------------------------------------------------------- for whom


async def test_configured_issuer_and_audience_are_required() -> None:
    strict = tokens(issuer="https://id.example.org", audience="perdure")
    right: dict[str, Any] = {"iss": "https://id.example.org", "aud": "perdure"}
    assert await refusal(strict, with_token(signed(**right))) == ""
    assert await refusal(strict, with_token(signed(**{**right, "aud": ["other", "perdure"]}))) == ""
    others: list[dict[str, Any]] = [{"iss": "https://evil.example.org"}, {"aud": "other"}, {"aud": []}]
    for wrong in (*others, {"iss": None}, {"aud": None}):
        assert await refusal(strict, with_token(signed(**{**right, **wrong}))) == NOT_VALID


async def test_token_with_an_audience_is_rejected_when_none_is_configured() -> None:
    assert await refusal(tokens(), with_token(signed(aud="another service"))) == NOT_VALID


# ---------------------------------------------------------------- attacks


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, "HS512", "RS256", "hs256", ["HS256"], {"a": 1}])
async def test_algorithm_header_other_than_the_configured_is_rejected(alg: Any) -> None:
    header = {"alg": alg, "typ": "JWT"}
    assert await refusal(tokens(), with_token(made_by_hand(header, SECRET.encode()))) == NOT_VALID
    assert await refusal(tokens(), with_token(f"{part(header)}.{part(claims())}.")) == NOT_VALID


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
async def test_another_algorithm_is_rejected_even_with_the_right_secret(algorithm: str) -> None:
    assert await refusal(tokens(algorithm=algorithm), with_token(signed(algorithm=algorithm))) == ""
    assert await refusal(tokens(), with_token(signed(algorithm=algorithm))) == NOT_VALID


async def test_token_without_signature_is_rejected() -> None:
    whole = signed()
    assert await refusal(tokens(), with_token(whole.rpartition(".")[0] + ".")) == NOT_VALID
    assert await refusal(tokens(), with_token(whole.rpartition(".")[0])) == NOT_VALID


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
async def test_token_signed_with_the_public_key_as_secret_is_rejected(kind: Any) -> None:
    _, public = key_pair(kind)
    known = tokens(public, algorithm=kind)
    for alg in ("HS256", kind):
        for secret in (public, public.strip()):
            assert await refusal(known, with_token(made_by_hand({"alg": alg}, secret.encode()))) == NOT_VALID


async def test_key_inside_the_token_is_not_used() -> None:
    _, public = key_pair("RS256")
    brought = {"jwk": {"kty": "oct", "k": part(b"x" * 32)}, "x5u": "https://evil", "kid": "../../dev/null"}
    token = made_by_hand({"alg": "HS256", **brought}, b"x" * 32)
    assert await refusal(tokens(), with_token(token)) == NOT_VALID
    assert await refusal(tokens(public, algorithm="RS256"), with_token(token)) == NOT_VALID


async def test_unknown_critical_header_is_rejected() -> None:
    token = made_by_hand({"alg": "HS256", "crit": ["zip"], "zip": "DEF"}, SECRET.encode())
    assert await refusal(tokens(), with_token(token)) == NOT_VALID


async def test_another_secret_and_changed_claims_are_rejected() -> None:
    assert await refusal(tokens(), with_token(signed(ANOTHER_SECRET))) == NOT_VALID
    head, _, signature = signed().split(".")
    assert await refusal(tokens(), with_token(f"{head}.{part(claims(user_id='root'))}.{signature}")) == NOT_VALID


@pytest.mark.parametrize(
    "rubbish",
    [
        *("a", ".", "..", "a.b.c", "....", "é.é.é", "\ud800", "a b c", "\x00.\x00.\x00", "=.=.="),
        "a" * 10_000_000,
        f"{part({'alg': 'HS256'})}.{part(b'[' * 10_000)}.x",
        f"{part(b'[' * 10_000)}.x.x",
        f"{part({'alg': 'HS256'})}.{part([1, 2])}.x",
        "pd_0123456789abcdef_" + "A" * 43,
    ],
    ids=lambda text: repr(text[:12]),
)
async def test_rubbish_is_rejected(rubbish: str) -> None:
    assert await refusal(tokens(), with_token(rubbish)) == NOT_VALID


async def test_signed_claims_that_are_nested_or_not_an_object_are_rejected() -> None:
    for payload in (b"[" * 8_000, b'{"exp":' * 1_500, b"[1]", b'"text"', b"\xff"):
        body = f"{part({'alg': 'HS256'})}.{part(payload)}"
        signature = part(hmac.new(SECRET.encode(), body.encode(), hashlib.sha256).digest())
        assert await refusal(tokens(), with_token(f"{body}.{signature}")) == NOT_VALID


async def test_neither_token_nor_secret_is_shown_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = signed(ANOTHER_SECRET)
    sentence = await refusal(tokens(), with_token(token))
    for text in (sentence, caplog.text):
        assert token not in text and token.split(".")[1] not in text and SECRET not in text
