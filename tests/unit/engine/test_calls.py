"""How calls of a delivery are told from those of another."""

from __future__ import annotations

from holdfast.codecs.json_codec import JsonCodec
from holdfast.engine.calls import Calls


def test_the_first_call_of_a_delivery_comes_after_none_of_one_that_is_gone() -> None:
    gone = Calls(object(), JsonCodec())
    gone.made(gone.identify("write", [], {}, None))
    place = id(gone)
    del gone

    kept = []
    for _ in range(1000):  # until one stands where the other did
        calls = Calls(object(), JsonCodec())
        assert calls.identify("edit", [], {}, None).after is None
        if id(calls) == place:
            return
        kept.append(calls)
