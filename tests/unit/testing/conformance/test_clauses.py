"""The clauses themselves: each is a sentence, and cites one of the contract."""

from __future__ import annotations

import inspect
import re

import pytest

import perdure.records
import perdure.store
from perdure.testing.conformance.suite import FAMILIES, StoreConformance, all_clauses, select_clauses


def in_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


CONTRACT = in_one_line(inspect.getsource(perdure.store) + inspect.getsource(perdure.records))


def test_a_clause_cites_what_the_contract_says() -> None:
    assert all(one.cites for one in all_clauses())
    wrong = [f"{one.name}: {one.cites}" for one in all_clauses() if in_one_line(one.cites) not in CONTRACT]
    assert not wrong, "these clauses cite what the contract does not say, or not any more"


def test_no_two_clauses_have_one_name() -> None:
    names = [one.name for one in all_clauses()]
    assert len(set(names)) == len(names) >= 60


def test_every_family_has_clauses_and_every_clause_is_a_method_of_the_class_for_pytest() -> None:
    assert {one.family for one in all_clauses()} == {
        one.__name__.rpartition(".")[2].replace("_", " ") for one in FAMILIES
    }
    methods = [name for name in vars(StoreConformance) if name.startswith("test_")]
    assert methods == [f"test_{one.name}" for one in all_clauses()]


def test_clauses_are_chosen_by_name_and_by_family() -> None:
    assert select_clauses(None) == all_clauses()
    assert {one.family for one in select_clauses(["retention", "journal"])} == {"retention", "journal"}
    [one] = select_clauses("a_new_thread_opens_empty")
    assert (one.family, one.sentence) == ("owning", "a new thread opens empty")
    with pytest.raises(ValueError, match=r"No clause or family is named 'own' \(did you mean 'owning'\?\)"):
        select_clauses("own")
