"""Promise 11: what a decoder may build, and what it may import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.codecs.samples import Author, Plain, Right

from perdure.codec import DeclaredTypes, declare
from perdure.codecs import JsonCodec, TypeRegistry
from perdure.codecs.walk import Refusal
from perdure.errors import UnreadableValue

MODELS = """
import os, subprocess, enum, dataclasses, collections, typing
import codec_pkg_spy
from subprocess import Popen, CompletedProcess
from dataclasses import dataclass

@dataclass
class Order:
    item: str
    @dataclass
    class Line:
        count: int

class Service:
    def __init__(self): raise SystemExit

class Kind(enum.Enum):
    A = 1

def build(**kw): raise SystemExit
Alias = Order
Stranger = collections.OrderedDict

def __getattr__(name): raise SystemExit(name)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `codec_pkg` that was not imported yet."""
    folder = tmp_path / "codec_pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "models.py").write_text(MODELS)
    (folder / "broken.py").write_text("raise RuntimeError('half written')")
    (folder / "leaving.py").write_text("raise SystemExit(3)")
    (folder / "__main__.py").write_text("raise SystemExit(4)")
    (tmp_path / "codec_pkg_spy.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith("codec_pkg")]:
        del sys.modules[name]


PACKAGE = DeclaredTypes(packages=frozenset({"codec_pkg"}))
ORDER = {"$type": "codec_pkg.models:Order", "item": "tea"}


def test_data_types_of_a_declared_package_are_imported_and_built(package: Path) -> None:
    codec = JsonCodec(PACKAGE)
    order = codec.decode([ORDER, {"$type": "codec_pkg.models:Order.Line", "count": 2}], "state")
    assert (order[0].item, order[1].count) == ("tea", 2)
    assert codec.encode(order[0], "state") == ORDER


def test_a_type_declared_by_name_is_imported_and_built(package: Path) -> None:
    codec = JsonCodec(declare("codec_pkg.models:Order"))
    assert codec.decode(ORDER, "state").item == "tea"
    with pytest.raises(UnreadableValue, match=r"'codec_pkg\.models:Kind' was not declared"):
        codec.decode({"$type": "codec_pkg.models:Kind", "name": "A"}, "state")


def test_nothing_is_imported_for_a_type_that_was_not_declared(package: Path) -> None:
    with pytest.raises(
        UnreadableValue, match=r"Cannot read state\[0\]: the type 'codec_pkg.models:Order' was not declared"
    ):
        JsonCodec().decode([ORDER], "state")
    assert "codec_pkg.models" not in sys.modules
    assert "codec_pkg" not in sys.modules


@pytest.mark.parametrize(
    "name",
    [
        "codec_pkg.models:Service",
        "codec_pkg.models:build",
        "codec_pkg.models:os",
        "codec_pkg.models:os.system",
        "codec_pkg.models:subprocess.Popen",
        "codec_pkg.models:Popen",
        "codec_pkg.models:CompletedProcess",
        "codec_pkg.models:Stranger",
        "codec_pkg.models:Alias",
        "codec_pkg.models:Order.__init__",
        "codec_pkg.models:Order.__class__",
        "codec_pkg.models:Missing",
        "codec_pkg.models:",
        "codec_pkg.models",
        "codec_pkg.models:f.<locals>.C",
        "codec_pkg:models.Order",
        "codec_pkg.models.Order:",
        "codec_pkg..models:Order",
        ".models:Order",
        "codec_pkg/models:Order",
        "codec_pkg.models:Order\x00",
        "os:system",
        "builtins:eval",
        "builtins:object",
        "subprocess:Popen",
        "codec_pkg.__main__:Order",
    ],
)
def test_only_data_types_under_their_own_names_are_built(package: Path, name: str) -> None:
    codec = JsonCodec(PACKAGE)
    for tree in ({"$type": name}, {"$type": "type", "name": name}, {"$type": name, "args": ["x"], "$items": []}):
        with pytest.raises(UnreadableValue, match="was not declared, or is not a data type"):
            codec.decode(tree, "state")


@pytest.mark.parametrize("module", ["broken", "leaving", "absent"])
def test_a_module_that_cannot_be_imported_makes_the_value_unreadable(package: Path, module: str) -> None:
    with pytest.raises(UnreadableValue, match=f"module codec_pkg.{module} cannot be imported.*migration"):
        JsonCodec(PACKAGE).decode({"$type": f"codec_pkg.{module}:Order"}, "state")


def test_class_of_a_script_is_stored_under_its_import_name(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]

    @dataclass
    class Job:
        a: int

    Job.__module__, Job.__qualname__ = "__main__", "Job"
    monkeypatch.setattr(main, "Job", Job, raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", "/somewhere/codec_script.py", raising=False)
    codec = JsonCodec(DeclaredTypes(packages=frozenset({"codec_script"})))
    tree = codec.encode(Job(1), "state")
    assert tree == {"$type": "codec_script:Job", "a": 1}
    assert codec.decode(tree, "state") == Job(1)


def test_perdure_types_need_no_declaration_but_are_not_imported_by_name() -> None:
    registry = TypeRegistry()
    assert registry.resolve("perdure:StoredError") is not None
    assert registry.resolve("perdure:JsonCodec") is None
    assert registry.resolve("perdure:NothingHere") is None


def test_a_local_class_can_be_declared() -> None:
    @dataclass
    class Local:
        a: int

    codec = JsonCodec(DeclaredTypes(types=frozenset({Local})))
    assert codec.decode(codec.encode(Local(1), "v"), "v") == Local(1)


def test_declaring_a_class_does_not_make_it_a_data_type() -> None:
    registry = TypeRegistry(DeclaredTypes(types=frozenset({Plain})))
    assert registry.resolve("tests.unit.codecs.samples:Plain") is None
    with pytest.raises(Refusal, match="not a data type"):
        registry.name_of(Plain)


def test_for_types_returns_a_strict_codec_for_other_types() -> None:
    codec = JsonCodec(lenient=True).for_types(DeclaredTypes(types=frozenset({Author})))
    assert codec.decode(codec.encode(Author("x"), "v"), "v") == Author("x")
    with pytest.raises(UnreadableValue, match="not declared"):
        codec.decode({"$type": "tests.unit.codecs.samples:Right", "name": Right.READ.name}, "v")
