"""The address of a request: the headers of trusted proxies count, and those of other peers do not."""

from __future__ import annotations

import pytest

from perdure.server.config.schema import InvalidConfig
from perdure.server.rate_limit import client_address, limit_key, trusted_networks

PROXIES = ("10.0.0.0/8", "2001:db8::/32", "192.168.1.1")


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.9", "1.2.3.4", "203.0.113.9"),  # the peer is not trusted, so its header is ignored
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),  # the left one was written by 1.2.3.4
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.2, 192.168.1.1", "1.2.3.4"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4, rubbish", "10.0.0.1"),
        ("10.0.0.1", "rubbish, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", ",,,", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4:5678", "1.2.3.4"),
        ("10.0.0.1", '"[2a00::7]:443"', "2a00::7"),
        ("10.0.0.1", "2A00:0::7", "2a00::7"),
        ("2001:db8::1", "1.2.3.4", "1.2.3.4"),
        ("::ffff:10.0.0.1", "::ffff:1.2.3.4", "1.2.3.4"),
        ("fe80::1%eth0", "1.2.3.4", "fe80::1"),
        ("10.0.0.1", "1.2.3.4\r\nX-Evil: 1", "10.0.0.1"),
        ("10.0.0.1", "x" * 1_000_000, "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2," * 100_000 + "1.2.3.4", "1.2.3.4"),
        (None, "1.2.3.4", "unknown"),
        ("testclient", "1.2.3.4", "testclient"),
    ],
)
def test_nearest_untrusted_address_is_the_client(peer: str | None, forwarded: str, expected: str) -> None:
    assert client_address(peer, {"x-forwarded-for": forwarded}, PROXIES) == expected


def test_peer_is_the_client_without_trusted_proxies() -> None:
    assert client_address("10.0.0.1", {"x-forwarded-for": "1.2.3.4"}, ()) == "10.0.0.1"
    assert client_address("10.0.0.1", {}, PROXIES) == "10.0.0.1"


def test_limit_key_is_the_address_the_user_or_global() -> None:
    assert limit_key("ip", "1.2.3.4", "ada") == "ip:1.2.3.4"
    assert limit_key("user", "1.2.3.4", "ada") == "user:ada"
    assert limit_key("user", "1.2.3.4", None) == "ip:1.2.3.4"
    assert limit_key("global", "1.2.3.4", "ada") == "global"
    assert limit_key("ip", "unknown", None) == "ip:unknown"


def test_addresses_of_one_ipv6_network_share_a_limit_key() -> None:
    assert limit_key("ip", "2a00:1:2:3::1", None) == limit_key("ip", "2a00:1:2:3:ffff::9", None)
    assert limit_key("ip", "2a00:1:2:3::1", None) != limit_key("ip", "2a00:1:2:4::1", None)


def test_trusted_proxy_that_is_not_an_address_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match=r"rate_limit\.trusted_proxies: 'proxy\.local' is neither"):
        trusted_networks(("10.0.0.1", "proxy.local"))
