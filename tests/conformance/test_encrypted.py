"""An encrypted store keeps the contract. The layer is the same over any store; here SQLite is below it."""

from __future__ import annotations

import pytest
from tests.chance import SEED
from tests.conformance.stores import make_encrypted

from perdure.testing.conformance import validate
from perdure.testing.conformance.clause import FILES
from perdure.testing.conformance.suite import all_clauses, select_clauses

FAMILIES = list(dict.fromkeys(clause.family for clause in all_clauses()))


def of_the_layer(family: str) -> list[str]:
    """The clauses of a family, without those that take long and that the store below answers for: kills and files."""
    clauses = select_clauses(family)
    return [clause.name for clause in clauses if "kill" not in clause.name and clause.needs != FILES]


@pytest.mark.parametrize("family", FAMILIES)
async def test_an_encrypted_store_conforms(family: str) -> None:
    report = await validate(make_encrypted, only=of_the_layer(family), seed=SEED, tell=None)
    assert report.ok, report.failures
    assert report.results and not report.not_applicable


async def test_a_changed_byte_of_an_encrypted_store_gives_no_other_bytes() -> None:
    only = "a_changed_byte_anywhere_gives_no_other_bytes"
    report = await validate(make_encrypted, only=only, seed=SEED, tell=None)
    assert report.ok, report.failures
