"""How calls of a delivery are told from those of another."""

from __future__ import annotations

from perdure.codecs.json_codec import JsonCodec
from perdure.engine.steps.calls import Calls


def test_the_first_call_of_a_delivery_comes_after_none_of_one_that_is_gone() -> None:
    owner, codec = object(), JsonCodec()
    for _ in range(100):  # sooner or later one stands in memory where the other did
        gone = Calls(owner, codec)
        gone.mark_returned(gone.identify("write", [], {}, None))
        del gone
        assert Calls(owner, codec).identify("edit", [], {}, None).after is None
