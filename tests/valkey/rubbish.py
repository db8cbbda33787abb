"""What another program might write to Valkey, or a fault might leave there."""

from __future__ import annotations

import os

import redis


def fill_with_rubbish(url: str) -> None:
    """Every key of ours holds something else, and every channel of ours says something."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter("perdure:*"):
            client.delete(key)
            client.rpush(key, b"a list where a value belongs")
        for channel in client.pubsub_channels("perdure:*"):
            for message in messages():
                client.publish(channel, message)


def messages() -> list[bytes]:
    """Return messages of all kinds that could be taken for ours, from a process that does not exist."""
    sender = os.urandom(8)
    bodies = [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[1]",
        b'[0,{"type":"data"}]',
        b'[0,{"type":"data","data":{"$type":"os:system"}}]',
        b'[-1,{"type":5}]',
        b'[1e999,{"type":"data"}]',
        b'[999999999999999999999999,{"type":"output","seq":1,"data":"forged"}]',
        b'[0,{"type":"data","data":' + b"[" * 5000,
        b"x" * 100_000,
    ]
    return [b"", b"short", sender, sender + b"c", sender + b"?", *(sender + b"t" + body for body in bodies)]
