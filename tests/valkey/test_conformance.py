"""A store with Valkey beside it keeps every clause of the contract, whether Valkey is there or not."""

from __future__ import annotations

import pytest
from tests.valkey.makers import URL, with_valkey

from perdure.testing.conformance import validate
from perdure.testing.conformance.clause import Clause, Needs
from perdure.testing.conformance.suite import all_clauses

FAMILIES = list(dict.fromkeys(one.family for one in all_clauses()))
BY_FAMILY = {
    family: [one.name for one in all_clauses() if one.family == family and one.needs is not Needs.PROCESSES]
    for family in FAMILIES
}
WITH_PROCESSES = [one for one in all_clauses() if one.needs is Needs.PROCESSES]


@pytest.mark.parametrize("family", FAMILIES)
async def test_it_conforms_with_valkey(family: str, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, valkey_url)
    report = await validate(with_valkey, only=BY_FAMILY[family], tell=None)
    assert report.ok, report.failures


@pytest.mark.parametrize("clause", WITH_PROCESSES, ids=lambda one: one.name)
async def test_it_conforms_with_valkey_and_other_processes(
    clause: Clause, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, valkey_url)
    report = await validate(with_valkey, only=clause.name, tell=None)
    assert report.ok, report.failures


@pytest.mark.parametrize("family", FAMILIES)
async def test_it_conforms_without_valkey(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, "redis://127.0.0.1:1")
    report = await validate(with_valkey, only=BY_FAMILY[family], tell=None)
    assert report.ok, report.failures
