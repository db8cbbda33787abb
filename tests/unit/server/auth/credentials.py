"""Credentials of requests, made for tests."""

from __future__ import annotations

from perdure.server.auth.principal import Authenticator, Credentials, NotAuthenticated


def with_token(token: str) -> Credentials:
    return Credentials(headers={"authorization": f"Bearer {token}"}, token=token)


def with_key(key: str) -> Credentials:
    return Credentials(headers={"x-api-key": key}, api_key=key)


async def refusal(authenticator: Authenticator, credentials: Credentials) -> str:
    """Returns the sentence of the rejection, or an empty text if the credentials are accepted."""
    try:
        await authenticator.authenticate(credentials)
    except NotAuthenticated as problem:
        return str(problem)
    return ""
