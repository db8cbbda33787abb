"""The names of chunks in an encrypted store: others, which can be turned back, and tell nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.encryption.places import NEW, OLD

from perdure.codecs.aes_gcm import AesGcm
from perdure.digests import SHORT, digest_of
from perdure.errors import UnsupportedId
from perdure.stores.encrypted.names import Names

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
NAMES = st.text(ALPHABET, max_size=70)


def names_of(thread_id: str = "t", key: bytes = OLD) -> Names:
    return Names(AesGcm(NEW).scrambler(key, thread_id))


@given(st.lists(NAMES, max_size=80))
def test_every_name_is_turned_into_another_of_its_length_and_back(given_names: list[str]) -> None:
    stored = names_of().encrypt(given_names)
    assert set(stored) == set(given_names)
    assert {name: len(one) for name, one in stored.items()} == {name: len(name) for name in stored}
    assert len(set(stored.values())) == len(stored), "two names became one"
    assert names_of().decrypt(stored.values()) == {one: name for name, one in stored.items()}


@given(st.lists(st.text(ALPHABET, min_size=SHORT, max_size=70), min_size=1))
def test_the_first_characters_are_what_shortened_references_become(given_names: list[str]) -> None:
    stored = names_of().encrypt([*given_names, *(name[:SHORT] for name in given_names)])
    assert all(stored[name].startswith(stored[name[:SHORT]]) for name in given_names)


@given(st.lists(NAMES, min_size=1, max_size=10))
def test_a_name_becomes_the_same_whatever_goes_with_it(given_names: list[str]) -> None:
    together = names_of().encrypt(given_names)
    assert together == {name: names_of().encrypt([name])[name] for name in given_names}


def test_a_name_is_another_in_another_thread_and_with_another_key() -> None:
    digests = [digest_of(b"%d" % number) for number in range(300)]
    found = [names_of(*given_).encrypt(digests) for given_ in (("t", OLD), ("u", OLD), ("t", NEW))]
    for one in digests:
        stored = [one, *(names[one] for names in found)]
        assert len({name[:SHORT] for name in stored}) == 4, "first characters meet in fewer than one of 10 million"
        assert len({name[SHORT:] for name in stored}) == 4


def test_names_that_differ_a_little_become_quite_different_ones() -> None:
    """In 22 characters of 64 each, two that have nothing to do with each other agree in 0.3 of them."""
    digest = digest_of(b"1")
    others = [digest[:at] + ALPHABET[ALPHABET.index(digest[at]) ^ 1] + digest[at + 1 :] for at in range(len(digest))]
    stored = names_of().encrypt([digest, *others])
    agreeing = [
        sum(a == b for a, b in zip(stored[digest][start:], stored[other][start:], strict=True))
        for at, other in enumerate(others)
        for start in (0 if at < SHORT else SHORT,)
    ]
    assert sum(agreeing) / len(agreeing) < 1.5 and max(agreeing) < 6


@pytest.mark.parametrize("name", ["a.b", "é", "a-b", "a\0", " ", '"'])
def test_what_is_no_digest_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedId, match="digest of a chunk"):
        names_of().encrypt([name])
