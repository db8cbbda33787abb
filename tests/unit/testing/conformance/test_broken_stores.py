"""Every clause has been seen to fail: on a store that is broken in just the way that it is about."""

from __future__ import annotations

import pytest
from tests.unit.testing.conformance.broken_stores import BROKEN
from tests.unit.testing.conformance.passing import OnDisk, Passing

from perdure.testing.conformance import validate
from perdure.testing.conformance.clause import Clause, Needs
from perdure.testing.conformance.suite import all_clauses


def test_there_is_a_broken_store_for_each_clause_and_for_nothing_else() -> None:
    assert sorted(BROKEN) == sorted(one.name for one in all_clauses())


@pytest.mark.parametrize("clause", all_clauses(), ids=lambda one: one.name)
async def test_a_store_that_is_broken_in_this_way_is_found_out(clause: Clause) -> None:
    broken = BROKEN[clause.name]
    report = await validate(broken, shared=clause.needs is not Needs.A_STORE, only=clause.name)
    assert [one.name for one in report.failures] == [clause.name], f"{broken.__name__} passes for sound"
    assert len(report.failures[0].reason) > 20


async def test_what_the_broken_ones_are_made_of_is_sound() -> None:
    report = await validate(Passing, shared=False)
    assert report.ok, report.failures
    for clause in (one for one in all_clauses() if one.needs is not Needs.A_STORE):
        assert issubclass(BROKEN[clause.name], OnDisk) or clause.family in ("upkeep", "damage")
