"""A store with Valkey beside it keeps the contract, whether Valkey runs or not."""

from __future__ import annotations

import pytest
from tests.chance import SEED
from tests.conformance.stores import VALKEY_URL, make_with_valkey
from tests.conformance.test_encrypted import FAMILIES, of_the_layer

from perdure.testing.conformance import validate
from perdure.testing.conformance.clause import PROCESSES
from perdure.testing.conformance.suite import select_clauses


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_store_with_valkey_conforms(family: str, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VALKEY_URL, valkey_url)
    report = await validate(make_with_valkey, only=of_the_layer(family), seed=SEED, tell=None)
    assert report.ok, report.failures


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_store_conforms_while_valkey_is_down(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VALKEY_URL, "redis://127.0.0.1:1")
    names = [clause.name for clause in select_clauses(of_the_layer(family)) if clause.needs != PROCESSES]
    report = await validate(make_with_valkey, only=names, seed=SEED, tell=None)
    assert report.ok, report.failures
