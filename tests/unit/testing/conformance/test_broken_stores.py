"""Every clause has been seen to fail: on a store that is broken in just the way that it is about."""

from __future__ import annotations

import pytest
from tests.unit.testing.conformance.broken_owning import LivesInOneObject
from tests.unit.testing.conformance.broken_stores import BROKEN
from tests.unit.testing.conformance.passing import OnDisk, Passing

from perdure.testing.conformance import validate
from perdure.testing.conformance.clause import Clause
from perdure.testing.conformance.clauses import events
from perdure.testing.conformance.suite import all_clauses


def test_every_clause_has_a_broken_store() -> None:
    assert sorted(BROKEN) == sorted(clause.name for clause in all_clauses())


@pytest.mark.parametrize(
    ("clause", "broken"),
    [
        pytest.param(clause, broken, id=f"{clause.name}-{broken.__name__}")
        for clause in all_clauses()
        for broken in BROKEN.get(clause.name, ())
    ],
)
async def test_validation_of_a_broken_store_fails_exactly_its_clause(
    clause: Clause, broken: type[Passing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LONG_SECONDS", 0.5)  # a broken store never notifies: no need to wait long
    report = await validate(broken, shared=clause.needs is not None, only=clause.name)
    assert [result.name for result in report.failures] == [clause.name], f"{broken.__name__} passes for sound"
    assert len(report.failures[0].reason) > 20


async def test_base_class_of_the_broken_stores_is_sound() -> None:
    report = await validate(Passing, shared=False)
    assert report.ok, report.failures
    for clause in (each for each in all_clauses() if each.needs is not None):
        kinds = (OnDisk, LivesInOneObject)
        assert all(issubclass(broken, kinds) for broken in BROKEN[clause.name]) or clause.family == "damage"
