"""The house rules, kept by reading the source: who imports whom, how long things are, what is never used."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "perdure"
FILES = sorted(SOURCE.rglob("*.py"))

# ---------------------------------------------------------------- who may import whom

FLOOR = {
    *("cancelling", "digests", "errors", "events", "isolation", "lazy", "log", "names", "platform"),
    *("observing", "records"),
}
"""Open to all, and importing nothing but each other."""

MAY_IMPORT: dict[str, set[str]] = {
    **{room: set() for room in FLOOR},
    "clock": set(),
    "events": {"codecs"},  # an event as JSON
    "exceptions": set(),
    "codec": set(),
    "store": set(),
    "graph": set(),
    "codecs": {"codec"},
    "stores": {"store", "clock"},
    "checkpoints": {"store", "codec", "codecs", "clock"},  # codecs: the default codec is named in one place
    "engine": {"graph", "checkpoints", "codec", "store", "clock"},  # contracts, never stores/
    "agents": {"graph", "engine", "checkpoints", "codec", "codecs", "clock"},  # codecs: how messages are stored
    "workflows": {"agents", "graph", "engine", "checkpoints", "codec", "store", "clock"},  # the public face
    "orchestrations": {"workflows", "agents", "graph", "engine", "checkpoints", "clock"},
    "agent_workflow": {  # storages: with_..._store
        *("workflows", "agents", "graph", "engine", "checkpoints", "storages", "clock"),
    },
    "storages": {"checkpoints", "stores", "store", "codec", "codecs", "clock"},  # the one place that names stores
    "checkpointers": {"storages", "checkpoints"},  # the same under other names
    "client": set(),  # it speaks HTTP: nothing of the engine
    "server": {
        *("storages", "agent_workflow", "orchestrations", "workflows", "agents", "graph", "engine"),
        *("checkpoints", "store", "codec", "clock"),
    },
}
"""For each room (a file or folder below src/perdure) what it may import beside itself and the floor."""

OPEN_TO_ALL_ROOMS = {"cli", "testing", "__init__", "__main__"}
"""These put the parts together: the command line, helpers for tests, and the lazy list of public names."""

# ---------------------------------------------------------------- optional dependencies

OPTIONAL = {
    "asyncpg": "stores",
    "redis": "stores",
    "cryptography": "codecs",
    "pydantic_ai": "agents",
    "yaml": "agent_workflow",
    "litestar": "server",
    "uvicorn": "server",
    "jwt": "server",
    "prometheus_client": "server",
    "opentelemetry": "engine",
    "httpx": "client",
    "pydantic": "codecs",
}
"""What an extra installs, and the room that may hold the one module importing it on top of the file."""

PLACES = {
    "pydantic_ai": ("agents/pydantic/", "agents/adapters/"),
    "pydantic": ("agents/pydantic/", "agents/adapters/"),
    "litestar": ("server/http/",),
    "httpx": ("client/",),
    "prometheus_client": ("server/metrics.py",),
}
"""Folders that may import them on top: each is imported only by those who use such an agent."""

NEVER_ON_TOP = {"pydantic", "opentelemetry", "cryptography"}
"""Needed by rooms of the base install: imported inside functions there, once somebody uses such a thing."""

# ---------------------------------------------------------------- budgets

FILE_LINES, FUNCTION_LINES, LONG_FUNCTION_LINES, CLASS_LINES = 400, 60, 40, 250

OVER_BUDGET = {
    "__init__.py": "a list: every public name, for people and for type checkers",
}
"""`path` or `path:Qualname`, each with its reason."""

FORBIDDEN_CALLS = {"eval", "exec"}
FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
PICKLE_CODEC = "codecs/pickle_codec.py"


@dataclass(frozen=True)
class Import:
    """One imported module, where, and whether it is imported as soon as its file is."""

    file: str
    line: int
    module: str
    on_top: bool

    @property
    def where(self) -> str:
        return f"src/perdure/{self.file}:{self.line}"


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(file: str) -> str:
    return file.split("/", 1)[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    text = path.read_text(encoding="utf-8")
    try:
        return ast.parse(text, filename=str(path))
    except SystemError:  # CPython 3.11 loses count where two threads parse at the same time: gh-106905
        return ast.parse(text, filename=str(path))


def imports_of(path: Path) -> Iterator[Import]:
    for node, on_top in _statements(tree_of(path), on_top=True):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(relative(path), node.lineno, alias.name, on_top)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}:{node.lineno}: imports are absolute here"
            for alias in node.names:
                yield Import(relative(path), node.lineno, f"{node.module}.{alias.name}", on_top)


def _statements(node: ast.AST, *, on_top: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement, and whether it runs when the module is imported: not in a function, not for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # holds no statement
            continue
        yield child, on_top
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_type_checkers(child)
        yield from _statements(child, on_top=on_top and not lazy)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for path in FILES for found in imports_of(path))


def breaks_the_rules(found: Import) -> bool:
    package, _, rest = found.module.partition(".")
    here, there = room_of(found.file), rest.split(".")[0]
    is_door = found.file.count("/") == 1 and found.file.endswith("/__init__.py")  # a lazy list of public names
    if package != "perdure" or is_door or here in OPEN_TO_ALL_ROOMS or here == there or there in FLOOR:
        return False
    return there not in MAY_IMPORT[here]


def test_every_room_has_a_rule() -> None:
    rooms = {room_of(relative(path)) for path in FILES}
    assert rooms <= MAY_IMPORT.keys() | OPEN_TO_ALL_ROOMS, "say in MAY_IMPORT what the new room may import"


def test_nobody_imports_upwards_not_even_for_types_or_inside_a_function() -> None:
    wrong = [f"{found.where} imports {found.module}" for found in all_imports() if breaks_the_rules(found)]
    assert not wrong, "\n".join(["against ARCHITECTURE.md, 'Who may import whom':", *wrong])


def test_no_module_takes_the_public_names_from_the_lazy_list() -> None:
    """`from perdure import Executor` inside the package hides who needs whom, and can go round in circles."""
    rooms = MAY_IMPORT.keys() | OPEN_TO_ALL_ROOMS
    wrong = [
        f"{found.where} imports {found.module}"
        for found in all_imports()
        if room_of(found.file) not in OPEN_TO_ALL_ROOMS
        and found.module.startswith("perdure.")
        and found.module.split(".")[1] not in rooms
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "module", "breaks"),
    [
        ("engine/superstep/loop.py", "perdure.stores.memory.store.MemoryStore", True),
        ("graph/edges.py", "perdure.engine.superstep.loop", True),
        ("graph/edges.py", "perdure.errors.PerdureError", False),
        ("agents/executor.py", "perdure.workflows.workflow", True),
        ("workflows/workflow.py", "perdure.agents.executor", False),
        ("client/calls.py", "perdure.server.problems", True),
        ("records.py", "perdure.clock.Clock", True),
        ("cli/main.py", "perdure.stores.memory.store", False),
        ("checkpoints/storage.py", "perdure.codecs.json_codec", False),
        ("checkpoints/storage.py", "perdure.engine.thread.state", True),
    ],
)
def test_the_rule_itself_tells_right_from_wrong(file: str, module: str, breaks: bool) -> None:
    assert breaks_the_rules(Import(file, 1, module, on_top=False)) is breaks


def test_optional_dependencies_are_imported_in_one_module_of_their_room() -> None:
    users: dict[str, set[str]] = defaultdict(set)
    for found in all_imports():
        package = found.module.split(".")[0]
        if found.on_top and package in OPTIONAL and not found.file.startswith(PLACES.get(package, "-")):
            users[package].add(found.file)
    wrong = [
        f"{package}: {sorted(files)}"
        for package, files in users.items()
        if len(files) > 1 or package in NEVER_ON_TOP or {room_of(file) for file in files} != {OPTIONAL[package]}
    ]
    assert not wrong, f"import these inside a function of the one module that needs them: {wrong}"


# ---------------------------------------------------------------- sizes


def blocks(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Every function and class of a file with its dotted name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(tree_of(path), "")


def lines_of_code(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """From `def` to the end, without docstring, comments and empty lines."""
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    skipped = range(first.lineno, (first.end_lineno or 0) + 1) if has_docstring else range(0)
    lines = _lines(path)
    return sum(
        1
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if number not in skipped and lines[number - 1].strip() and not lines[number - 1].lstrip().startswith("#")
    )


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def over(limits: dict[type[ast.AST], int]) -> Iterator[str]:
    for path in FILES:
        for name, node in blocks(path):
            size = lines_of_code(path, node)
            limit = limits.get(type(node), size)
            place = f"{relative(path)}:{name}"
            if size > limit and place not in OVER_BUDGET:
                yield f"{place} has {size} lines, the limit is {limit}"


def test_files_are_short_enough_to_read_in_one_go() -> None:
    wrong = [
        f"{relative(path)} has {len(_lines(path))} lines, the limit is {FILE_LINES}"
        for path in FILES
        if len(_lines(path)) > FILE_LINES and relative(path) not in OVER_BUDGET
    ]
    assert not wrong, "\n".join(wrong)


def test_functions_and_classes_are_short() -> None:
    hard = {ast.FunctionDef: FUNCTION_LINES, ast.AsyncFunctionDef: FUNCTION_LINES, ast.ClassDef: CLASS_LINES}
    wrong = list(over(hard))
    assert not wrong, "\n".join(wrong)


def test_long_functions_are_reported() -> None:
    """Over 40 lines is allowed, and shown with `-rP`: the place to look first when something is to be split."""
    for each in over({ast.FunctionDef: LONG_FUNCTION_LINES, ast.AsyncFunctionDef: LONG_FUNCTION_LINES}):
        print(each)


def test_every_exception_from_the_budgets_is_still_needed() -> None:
    names = {relative(path) for path in FILES if len(_lines(path)) > FILE_LINES}
    for path in FILES:
        for name, node in blocks(path):
            if lines_of_code(path, node) > (CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES):
                names.add(f"{relative(path)}:{name}")
    assert OVER_BUDGET.keys() <= names


# ---------------------------------------------------------------- fences


def test_nothing_but_the_pickle_codec_can_run_code_from_data() -> None:
    wrong = [
        f"{found.where} imports {found.module}"
        for found in all_imports()
        if found.module.split(".")[0] in FORBIDDEN_IMPORTS and found.file != PICKLE_CODEC
    ]
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if called in FORBIDDEN_CALLS:
                wrong.append(f"src/perdure/{relative(path)}:{getattr(node, 'lineno', 0)} calls {called}()")
    assert not wrong, "\n".join(wrong)


NAMES_OF_THE_REFERENCE = {"BaseAgent", "BaseGroupChatOrchestrator", "StandardMagenticManager"}
"""Which users know: not ours to choose."""


def test_names_do_not_hide_that_nobody_decided() -> None:
    vague = re.compile(r"^(Base|Abstract)[A-Z]|(Impl|Manager|Helper)$")
    wrong = [
        f"{relative(path)}:{name}"
        for path in FILES
        for name, node in blocks(path)
        if isinstance(node, ast.ClassDef) and vague.search(node.name) and node.name not in NAMES_OF_THE_REFERENCE
    ]
    assert not wrong, wrong
    files = {path.stem for path in FILES} & {"utils", "common", "misc", "helpers"}
    assert not files, files


def test_decision_records_have_numbers_of_their_own() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    misnamed = [record.name for record in records if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", record.name)]
    assert not misnamed, f"decision records are called NNNN-title.md: {misnamed}"
    numbers = [record.name[:4] for record in records]
    assert len(numbers) == len(set(numbers)), f"a number was used twice: {numbers}"
