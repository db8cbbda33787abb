"""The names of chunks in an encrypted store: others, which can be turned back, and which reveal nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.encryption.places import NEW, OLD

from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import UnsupportedId
from perdure.names import SHORT, digest_of
from perdure.stores.encrypted.names import Names

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
NAMES = st.text(ALPHABET, max_size=70)


def names_of(thread_id: str = "t", key: bytes = OLD) -> Names:
    return Names(AesGcm(NEW).scrambler(key, thread_id))


@given(st.lists(NAMES, max_size=80))
def test_encrypted_name_has_the_same_length_and_decrypts(given_names: list[str]) -> None:
    stored = names_of().encrypt(given_names)
    assert set(stored) == set(given_names)
    assert {name: len(encrypted) for name, encrypted in stored.items()} == {name: len(name) for name in stored}
    assert len(set(stored.values())) == len(stored), "two names became one"
    assert names_of().decrypt(stored.values()) == {encrypted: name for name, encrypted in stored.items()}


@given(st.lists(st.text(ALPHABET, min_size=SHORT, max_size=70), min_size=1))
def test_encrypted_short_reference_is_a_prefix_of_the_encrypted_name(given_names: list[str]) -> None:
    stored = names_of().encrypt([*given_names, *(name[:SHORT] for name in given_names)])
    assert all(stored[name].startswith(stored[name[:SHORT]]) for name in given_names)


@given(st.lists(NAMES, min_size=1, max_size=10))
def test_encrypted_name_does_not_depend_on_the_names_beside_it(given_names: list[str]) -> None:
    together = names_of().encrypt(given_names)
    assert together == {name: names_of().encrypt([name])[name] for name in given_names}


def test_encrypted_name_differs_by_thread_and_by_key() -> None:
    digests = [digest_of(b"%d" % number) for number in range(300)]
    encrypted = [names_of(*arguments).encrypt(digests) for arguments in (("t", OLD), ("u", OLD), ("t", NEW))]
    for digest in digests:
        stored = [digest, *(names[digest] for names in encrypted)]
        assert len({name[:SHORT] for name in stored}) == 4, "first characters meet in fewer than one of 10 million"
        assert len({name[SHORT:] for name in stored}) == 4


def test_similar_names_become_quite_different() -> None:
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
def test_name_that_is_not_a_digest_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedId, match="digest of a chunk"):
        names_of().encrypt([name])
