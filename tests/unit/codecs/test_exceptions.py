from __future__ import annotations

from tests.unit.codecs.samples import Broken
from tests.unit.codecs.values import STRICT, again

from perdure.codecs import JsonCodec, StoredError, encodable_exception


def test_savable_exception_stays_unchanged() -> None:
    for error in (ValueError("x"), Broken(1, "d")):
        assert encodable_exception(error, STRICT) is error


def test_unsavable_exception_is_kept_by_its_name_and_message() -> None:
    kept = encodable_exception(Broken(1, "d"), JsonCodec())
    assert kept == StoredError("tests.unit.codecs.samples:Broken", "1: d")
    assert again(kept) == kept
    assert str(kept) == "tests.unit.codecs.samples:Broken: 1: d"
    assert isinstance(encodable_exception(ValueError(object()), STRICT), StoredError)


def test_exception_whose_str_raises_is_kept_by_its_name() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    kept = encodable_exception(Mute(), STRICT)
    assert isinstance(kept, StoredError)
    assert kept.message == "(its message cannot be shown: RuntimeError)"
