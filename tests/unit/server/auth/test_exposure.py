"""The authenticator of each configuration, and servers that do not start because other machines can reach them."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.auth.credentials import refusal, with_key

from perdure import AesGcm, InMemoryCheckpointStorage, SqliteCheckpointStorage
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.server.auth.api_keys import ApiKeys, KeyFile, make_key
from perdure.server.auth.custom import CustomAuthenticator
from perdure.server.auth.jwt_tokens import JwtTokens
from perdure.server.config.schema import AuthConfig, InvalidConfig, ServerConfig
from perdure.server.factory import check_exposure, is_loopback, make_authenticator
from perdure.stores.memory.store import MemoryStore
from perdure.testing import FakeClock

KEYS = AuthConfig(method="api_key")


def config(folder: Path | str = ".", **auth: Any) -> ServerConfig:
    return ServerConfig(auth=AuthConfig(**auth), folder=str(folder))


def make(config: ServerConfig, **environ: str) -> Any:
    return make_authenticator(config, lambda path: lambda credentials: {"user_id": path}, environ)


async def test_each_auth_method_has_its_authenticator(tmp_path: Path) -> None:
    assert make(config(method="none")) is None
    assert isinstance(make(config(tmp_path, method="api_key")), ApiKeys)
    assert isinstance(make(config(method="jwt", secret_env="S"), S=random.Random(1).randbytes(32).hex()), JwtTokens)
    assert isinstance(make(config(method="custom", path="app:who")), CustomAuthenticator)
    with pytest.raises(InvalidConfig, match=r"auth.path: .* is needed here"):
        make(config(method="custom"))


async def test_key_file_is_below_the_project_folder(tmp_path: Path) -> None:
    made = make_key("ada", created=FakeClock().now())
    KeyFile(tmp_path / "private" / "keys.json").change(lambda keys: (made.stored,))
    assert (
        await refusal(make(config(tmp_path, method="api_key", keys_file="private/keys.json")), with_key(made.key)) == ""
    )


LOOPBACK = ["127.0.0.1", "127.255.0.3", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1", "127.1"]
REACHABLE = [
    "0.0.0.0",
    "::",
    "[::]",
    "",
    "192.168.1.7",
    "10.0.0.1",
    "::ffff:0.0.0.0",
    "0",
    "fe80::1",
    "::ffff:10.0.0.1",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_is_recognized_in_all_spellings(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", [*REACHABLE, "no-such-host.invalid", "localhost.evil.invalid", "127.0.0.1.evil.invalid"]
)
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(("addresses", "expected"), [(["127.0.0.1"], True), (["127.0.0.1", "10.0.0.1"], False)])
def test_host_name_is_loopback_only_if_all_its_addresses_are(
    addresses: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: results)
    assert is_loopback("box") is expected


@pytest.mark.parametrize("host", REACHABLE)
def test_server_on_a_reachable_host_does_not_start_without_auth(host: str, tmp_path: Path) -> None:
    storage = SqliteCheckpointStorage(tmp_path / "threads.db")
    with pytest.raises(InvalidConfig, match=r"host: other machines can reach .* without auth .*does not start"):
        check_exposure(ServerConfig(host=host), storage)
    check_exposure(ServerConfig(host=host, auth=KEYS), storage)


@pytest.mark.parametrize(
    "storage",
    [
        InMemoryCheckpointStorage(),
        InMemoryCheckpointStorage(encryption=AesGcm(bytes(32))),
        StoreCheckpointStorage(MemoryStore()),
    ],
    ids=["plain", "encrypted", "by hand"],
)
def test_in_memory_threads_are_logged_on_loopback_and_rejected_elsewhere(
    storage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    check_exposure(ServerConfig(), storage)
    assert "Threads are kept in memory" in caplog.text
    with pytest.raises(InvalidConfig, match="threads are kept in memory: they are lost"):
        check_exposure(ServerConfig(host="0.0.0.0", auth=KEYS), storage)


def test_loopback_with_a_file_logs_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_exposure(ServerConfig(), SqliteCheckpointStorage(tmp_path / "threads.db"))
    assert caplog.text == ""
