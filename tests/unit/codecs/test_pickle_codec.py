from __future__ import annotations

import threading

import pytest
from tests.unit.codecs.samples import Plain

from perdure.codec import DeclaredTypes
from perdure.codecs import PickleSerializer, from_bytes, to_bytes
from perdure.errors import UnreadableValue, UnsavableValue


@pytest.fixture
def pickled() -> PickleSerializer:
    with pytest.warns(UserWarning, match="anyone who can write to the storage can run code"):
        return PickleSerializer()


def test_pickle_codec_stores_values_that_no_other_codec_can(pickled: PickleSerializer) -> None:
    tree = from_bytes(to_bytes(pickled.encode({"x": Plain()}, "state")), "state")
    assert type(pickled.decode(tree, "state")["x"]) is Plain


def test_values_that_pickle_rejects_are_unsavable(pickled: PickleSerializer) -> None:
    with pytest.raises(UnsavableValue, match="pickle rejected it"):
        pickled.encode(threading.Lock(), "state")


@pytest.mark.parametrize("tree", [1, {}, {"a": 1}, {"$pickle": 3}, {"$pickle": "x", "b": 1}, ["$pickle"]])
def test_a_tree_of_another_codec_is_unreadable(pickled: PickleSerializer, tree: object) -> None:
    with pytest.raises(UnreadableValue, match="not stored with PickleSerializer"):
        pickled.decode(tree, "state")


@pytest.mark.parametrize("text", ["", "eA==", "?", "é", "gASVBQAAAAAAAABdlCgu"])
def test_damaged_pickle_is_unreadable(pickled: PickleSerializer, text: str) -> None:
    with pytest.raises(UnreadableValue, match="pickle failed"):
        pickled.decode({"$pickle": text}, "state")


def test_pickle_codec_warns_once_and_not_for_every_workflow(pickled: PickleSerializer) -> None:
    assert pickled.for_types(DeclaredTypes()) is pickled
