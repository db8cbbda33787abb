"""How the calls of one delivery are distinguished from the calls of another."""

from __future__ import annotations

from perdure.codecs.json_codec import JsonCodec
from perdure.engine.delivery.replay import Calls


def test_first_call_of_a_delivery_follows_no_call_of_a_deleted_delivery() -> None:
    owner, codec = object(), JsonCodec()
    for _ in range(100):  # sooner or later the new object reuses the memory address of the old one
        gone = Calls(owner, codec)
        gone.mark_returned(gone.identify("write", [], {}, None))
        del gone
        assert Calls(owner, codec).identify("edit", [], {}, None).after is None
