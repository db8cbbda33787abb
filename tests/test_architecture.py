"""The structure of the source, checked by reading it: imports, sizes, and calls that are never used."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tests.parsing import FUNCTIONS, ROOT, SOURCE, Block, blocks, relative, tree_of

FILES = sorted(SOURCE.rglob("*.py"))

# ---------------------------------------------------------------- who may import whom

FLOOR = {
    *("errors", "events", "isolation", "log", "names", "platform"),
    *("observing", "records", "tree_reader", "twins", "valkey_client"),
}
"""Open to all, and importing nothing but each other."""

MAY_IMPORT: dict[str, set[str]] = {
    **{room: set() for room in FLOOR},
    "clock": set(),
    "events": {"codecs"},  # an event as JSON
    "exceptions": set(),
    "codec": set(),
    "store": set(),
    "graph": {"clock"},  # to await a thread of a cancelled handler
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

LAYERS = {
    "engine": ("tracing", "watch", "thread", "delivery", "run functions"),
    "agent_workflow": (
        *("condition", "definition", "documents", "events", "state", "store", "sessions", "conversations"),
        *("execution", "as_tool", "instance", "builder"),
    ),
}
"""The order inside a room: each part imports only those before it. Imports for type checkers do not count."""

NEVER_ON_TOP = {"pydantic", "opentelemetry", "cryptography"}
"""Needed by rooms of the base install: functions there import them, when a user needs them."""

# ---------------------------------------------------------------- budgets

FILE_LINES, FUNCTION_LINES, FOLDER_ENTRIES, METHODS, CHAIN = 400, 60, 14, 45, 3
WIDE_FOLDERS = {"commands", "routes", "clauses"}
"""Of one kind each, so that more entries are no harder to take in."""

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


def room_of(file: str) -> str:
    return file.split("/", 1)[0].removesuffix(".py")


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
    return tuple(imported for path in FILES for imported in imports_of(path))


def breaks_the_rules(imported: Import) -> bool:
    package, _, rest = imported.module.partition(".")
    here, there = room_of(imported.file), rest.split(".")[0]
    is_door = imported.file.count("/") == 1 and imported.file.endswith("/__init__.py")  # a lazy list of public names
    if package != "perdure" or is_door or here in OPEN_TO_ALL_ROOMS or here == there or there in FLOOR:
        return False
    return there not in MAY_IMPORT[here]


def test_every_room_has_a_rule() -> None:
    rooms = {room_of(relative(path)) for path in FILES}
    assert rooms <= MAY_IMPORT.keys() | OPEN_TO_ALL_ROOMS, "say in MAY_IMPORT what the new room may import"


def test_no_room_imports_upwards_for_types_or_inside_a_function() -> None:
    wrong = [f"{imported.where} imports {imported.module}" for imported in all_imports() if breaks_the_rules(imported)]
    assert not wrong, "\n".join(["against ARCHITECTURE.md, 'Who may import whom':", *wrong])


def test_no_module_takes_the_public_names_from_the_lazy_list() -> None:
    """`from perdure import Executor` inside the package hides who needs whom, and can go round in circles."""
    rooms = MAY_IMPORT.keys() | OPEN_TO_ALL_ROOMS
    wrong = [
        f"{imported.where} imports {imported.module}"
        for imported in all_imports()
        if room_of(imported.file) not in OPEN_TO_ALL_ROOMS
        and imported.module.startswith("perdure.")
        and imported.module.split(".")[1] not in rooms
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "module", "breaks"),
    [
        ("engine/run/loop.py", "perdure.stores.memory.store.MemoryStore", True),
        ("graph/edges.py", "perdure.engine.run.loop", True),
        ("graph/edges.py", "perdure.errors.PerdureError", False),
        ("agents/executor.py", "perdure.workflows.workflow", True),
        ("workflows/workflow.py", "perdure.agents.executor", False),
        ("client/fetch.py", "perdure.server.problems", True),
        ("records.py", "perdure.clock.Clock", True),
        ("cli/main.py", "perdure.stores.memory.store", False),
        ("checkpoints/storage.py", "perdure.codecs.json_codec", False),
        ("checkpoints/storage.py", "perdure.engine.thread.state", True),
    ],
)
def test_import_rule_separates_right_from_wrong(file: str, module: str, breaks: bool) -> None:
    assert breaks_the_rules(Import(file, 1, module, on_top=False)) is breaks


def test_optional_dependencies_are_imported_in_one_module_of_their_room() -> None:
    users: dict[str, set[str]] = defaultdict(set)
    for imported in all_imports():
        package = imported.module.split(".")[0]
        if imported.on_top and package in OPTIONAL and not imported.file.startswith(PLACES.get(package, "-")):
            users[package].add(imported.file)
    wrong = [
        f"{package}: {sorted(files)}"
        for package, files in users.items()
        if len(files) > 1 or package in NEVER_ON_TOP or {room_of(file) for file in files} != {OPTIONAL[package]}
    ]
    assert not wrong, f"import these inside a function of the one module that needs them: {wrong}"


# ---------------------------------------------------------------- what a reader must hold in the head


def module_of(path: Path) -> str:
    return ".".join(("perdure", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


@dataclass
class Class:
    """A class of ours, with the own classes that it inherits from."""

    bases: list[str]
    methods: int


@cache
def own_classes() -> dict[str, Class]:
    """Every module-level class by module and name. Errors are a tree by design and are left out."""
    classes = {}
    for path in FILES:
        module, tree = module_of(path), tree_of(path)
        names = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and "rror" not in node.name and ".errors" not in module:
                plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                bases = [names.get(base.id, f"{module}.{base.id}") for base in plain if isinstance(base, ast.Name)]
                methods = sum(isinstance(part, FUNCTIONS) for part in node.body)
                classes[f"{module}.{node.name}"] = Class(bases, methods)
    return classes


def chain_of(name: str) -> list[str]:
    """The class and the longest line of own classes above it."""
    classes = own_classes()
    above = (chain_of(base) for base in classes[name].bases if base in classes)
    return [name, *max(above, key=len, default=[])]


def methods_of(name: str) -> int:
    """All methods of a class, those of its own bases included: what an object of it really is."""
    classes = own_classes()
    return classes[name].methods + sum(methods_of(base) for base in classes[name].bases if base in classes)


def test_chains_of_own_classes_are_short() -> None:
    wrong = [" > ".join(chain_of(name)) for name in own_classes() if len(chain_of(name)) > CHAIN]
    assert not wrong, "hold parts or call functions instead of inheriting:\n" + "\n".join(wrong)


def test_a_class_has_few_methods_with_those_of_its_bases() -> None:
    wrong = [f"{name}: {methods_of(name)}" for name in own_classes() if methods_of(name) > METHODS]
    assert not wrong, f"more than {METHODS} methods:\n" + "\n".join(wrong)


def test_a_class_name_occurs_once() -> None:
    """A search for a name answers where it is. The client's public models and errors repeat names of the server."""
    repeated = set((ROOT / "tests/doors/perdure.client.txt").read_text(encoding="utf-8").split())
    homes = defaultdict(set)
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and (room_of(relative(path)) != "client" or node.name not in repeated):
                homes[node.name].add(relative(path))
    assert not {name: sorted(files) for name, files in homes.items() if len(files) > 1}


def is_entry(path: Path) -> bool:
    """A module, a package or a data file; not what a run leaves behind."""
    return (path / "__init__.py").exists() if path.is_dir() else path.name != "__init__.py"


def test_folders_are_narrow_enough_to_take_in_at_a_glance() -> None:
    folders = [path for path in SOURCE.rglob("*") if path.is_dir() and (path / "__init__.py").exists()]
    widths = {
        relative(folder): sum(is_entry(entry) for entry in folder.iterdir())
        for folder in folders
        if folder.name not in WIDE_FOLDERS
    }
    assert not {folder: width for folder, width in widths.items() if width > FOLDER_ENTRIES}


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count; those for type checkers do not."""
    modules = {module_of(path) for path in FILES}
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for path in FILES:
        for node in _runtime_nodes(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            else:
                continue
            edges[module_of(path)] |= (names & modules) - {module_of(path)}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as cycle:
        raise AssertionError(" > ".join(cycle.args[1])) from None


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not _is_for_type_checkers(child):
            yield child
            yield from _runtime_nodes(child)


@pytest.mark.parametrize("room", LAYERS)
def test_parts_of_a_room_import_only_the_parts_before_them(room: str) -> None:
    level = {part: number for number, parts in enumerate(LAYERS[room]) for part in parts.split()}
    wrong = []
    for path in (SOURCE / room).rglob("*.py"):
        here = path.relative_to(SOURCE / room).parts[0].removesuffix(".py")
        for node in _runtime_nodes(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and here in level:
                names = [f"{node.module}.{alias.name}.".split(".") for alias in node.names]
                parts = {name[2] for name in names if name[:2] == ["perdure", room]} - {here}
                wrong += [f"{relative(path)}: {part}" for part in parts if level[part] >= level[here]]
    assert not wrong, wrong


def lines_of_code(path: Path, node: Block) -> int:
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


def test_files_are_short_enough_to_read_in_one_go() -> None:
    long = {relative(path) for path in FILES if len(_lines(path)) > FILE_LINES}
    assert not long, f"over {FILE_LINES} lines: {long}"


def test_functions_are_short() -> None:
    wrong = [
        f"{relative(path)}:{name}"
        for path in FILES
        for name, node in blocks(path)
        if isinstance(node, FUNCTIONS) and lines_of_code(path, node) > FUNCTION_LINES
    ]
    assert not wrong, f"over {FUNCTION_LINES} lines of code: {wrong}"


# ---------------------------------------------------------------- fences


def test_nothing_but_the_pickle_codec_can_run_code_from_data() -> None:
    wrong = [
        f"{imported.where} imports {imported.module}"
        for imported in all_imports()
        if imported.module.split(".")[0] in FORBIDDEN_IMPORTS and imported.file != PICKLE_CODEC
    ]
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if called in FORBIDDEN_CALLS:
                wrong.append(f"src/perdure/{relative(path)}:{getattr(node, 'lineno', 0)} calls {called}()")
    assert not wrong, "\n".join(wrong)


def test_architecture_page_names_every_room_and_its_parts() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 120
    [tree, *_] = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    entries = [entry for pattern in ("*", "*/*") for entry in SOURCE.glob(pattern) if is_entry(entry)]
    parts = {entry.stem for entry in entries if entry.suffix in ("", ".py")} - {"__main__"}
    assert sorted(parts - set(re.findall(r"\w+", tree))) == []


def test_decision_records_have_numbers_of_their_own() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    misnamed = [record.name for record in records if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", record.name)]
    assert not misnamed, f"decision records are called NNNN-title.md: {misnamed}"
    numbers = [record.name[:4] for record in records]
    assert len(numbers) == len(set(numbers)), f"a number was used twice: {numbers}"
