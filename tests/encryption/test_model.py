"""Random acts on an encrypted store and on the model of the contract beside it; new keys come in between."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from tests.conformance.stores import STORES
from tests.encryption.places import NEW, OLD
from tests.property.test_stores import Beside, some_examples

from perdure.codecs.aes_gcm import AesGcm
from perdure.stores.encrypted.store import EncryptedStore

EXAMPLES = {"memory": 10, "sqlite": 4, "file": 3}


class EncryptedBeside(Beside):
    """What is done to a plain store, and new keys."""

    @rule(current=st.sampled_from(["old", "new"]))
    def rekey(self, current: str) -> None:
        assert isinstance(self.store, EncryptedStore)
        self.store = EncryptedStore(self.store.inner, AesGcm({"old": OLD, "new": NEW}, current=current))
        report = self.do(self.store.rekey())
        assert report.is_complete, report.failed


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_encrypted_store_holds_what_the_model_holds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, keys = STORES[kind], AesGcm({"old": OLD, "new": NEW}, current="old")
    monkeypatch.setitem(STORES, "encrypted", lambda folder: EncryptedStore(make(folder), keys))
    factory = partial(EncryptedBeside, "encrypted")
    run_state_machine_as_test(factory, settings=some_examples(EXAMPLES[kind]))  # type: ignore[arg-type]  # a factory will do
