from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.codecs.samples import Author
from tests.unit.codecs.values import STRICT

from perdure.codecs import JsonCodec, register_type, types as registry
from perdure.errors import UnreadableValue, UnsavableValue


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]  # how Python says "not hashable"


class Other:
    def __init__(self, data: Any) -> None: ...


@pytest.fixture(autouse=True)
def _clear_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered_classes", {})
    monkeypatch.setattr(registry, "_registered_names", {})
    return iter([None])


def test_a_registered_type_is_saved_and_loaded_by_every_codec() -> None:
    register_type(Money, lambda money: (money.cents,), lambda data: Money(*data), name="money")
    codec = JsonCodec()
    tree = codec.encode({"price": Money(5)}, "state")
    assert tree == {"price": {"$type": "money", "$value": {"$type": "tuple", "items": [5]}}}
    assert codec.decode(tree, "state") == {"price": Money(5)}
    assert codec.decode(codec.encode(Money, "t"), "t") is Money


def test_registered_name_defaults_to_the_class_name() -> None:
    register_type(Money, lambda money: money.cents, Money)
    assert JsonCodec().encode(Money(5), "state")["$type"] == f"{__name__}:Money"


def test_registration_takes_precedence_over_the_built_in_encoding() -> None:
    register_type(Author, lambda author: author.name, Author)
    assert JsonCodec().encode(Author("x"), "state")["$value"] == "x"


def test_encoder_that_fails_or_returns_no_data_raises_unsavable_value() -> None:
    register_type(Money, lambda money: 1 / 0, Money)
    with pytest.raises(
        UnsavableValue, match=r"Cannot save state\['a'\]: the encoder of .*Money failed: ZeroDivisionError"
    ):
        JsonCodec().encode({"a": Money(1)}, "state")
    register_type(Money, lambda money: money, Money)
    with pytest.raises(UnsavableValue, match="nested"):
        JsonCodec().encode(Money(1), "state")


def test_decoder_that_fails_or_returns_another_type_raises_unreadable() -> None:
    def fail(data: Any) -> Money:
        raise LookupError(data)

    register_type(Money, lambda money: 1, fail, name="money")
    with pytest.raises(UnreadableValue, match="LookupError: 1"):
        JsonCodec().decode({"$type": "money", "$value": 1}, "state")
    register_type(Money, lambda money: 1, lambda data: data, name="money")
    with pytest.raises(UnreadableValue, match="the decoder of money returned int"):
        JsonCodec().decode({"$type": "money", "$value": 1}, "state")


def test_one_name_cannot_mean_two_classes() -> None:
    register_type(Money, lambda money: 1, Money, name="money")
    with pytest.raises(ValueError, match="The name 'money' is registered for"):
        register_type(Other, lambda other: 1, Other, name="money")


@pytest.mark.parametrize(("cls", "name"), [(int, "x"), (Money, "tuple"), (Money, "type"), (ValueError, None)])
def test_built_in_types_and_names_cannot_be_registered(cls: type, name: str | None) -> None:
    with pytest.raises(ValueError, match="is built in"):
        register_type(cls, lambda value: 1, lambda data: data, name=name)


def test_unregistered_class_is_rejected() -> None:
    with pytest.raises(UnsavableValue, match="register_type"):
        STRICT.encode(Money(1), "state")
