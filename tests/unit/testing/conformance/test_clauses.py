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


def test_every_clause_cites_a_sentence_of_the_contract() -> None:
    assert all(clause.cites for clause in all_clauses())
    wrong = [f"{clause.name}: {clause.cites}" for clause in all_clauses() if in_one_line(clause.cites) not in CONTRACT]
    assert not wrong, "these clauses cite what the contract does not say, or not any more"


def test_clause_names_are_unique() -> None:
    names = [clause.name for clause in all_clauses()]
    assert len(set(names)) == len(names) >= 60


def test_every_clause_is_in_a_family_and_a_method_of_the_pytest_class() -> None:
    assert {clause.family for clause in all_clauses()} == {
        module.__name__.rpartition(".")[2].replace("_", " ") for module in FAMILIES
    }
    methods = [name for name in vars(StoreConformance) if name.startswith("test_")]
    assert methods == [f"test_{clause.name}" for clause in all_clauses()]


def test_clauses_are_chosen_by_name_and_by_family() -> None:
    assert select_clauses(None) == all_clauses()
    assert {clause.family for clause in select_clauses(["retention", "journal"])} == {"retention", "journal"}
    [clause] = select_clauses("a_new_thread_opens_empty")
    assert (clause.family, clause.sentence) == ("owning", "a new thread opens empty")
    with pytest.raises(ValueError, match=r"No clause or family is named 'own' \(did you mean 'owning'\?\)"):
        select_clauses("own")
