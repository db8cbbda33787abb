"""The words of the code: names, comments, errors and log lines follow the rules of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parsing import FUNCTIONS, ROOT, SOURCE, blocks, nodes_of, relative

FILES = sorted(SOURCE.rglob("*.py"))
ALL = [*FILES, *(path for room in ("tests", "examples", "benchmarks") for path in sorted((ROOT / room).rglob("*.py")))]
TEST_NAME = 70

DIALECT = {
    *("tell", "tells", "told", "telling", "teller", "say", "says", "said", "saying", "hear", "hears", "heard"),
    *("hearing", "unheard", "ear", "ears", "hall", "halls", "seat", "seats", "heed", "heeds", "heeded"),
    *("anew", "mend", "mended", "whoever", "somebody", "nobody", "keeper", "keepers"),
}
"""Words that names, errors and log lines do not use: the field has others (CONTRIBUTING.md)."""
PUBLIC_NAMES = {
    "tests/fixtures/format_1.py: Keeper",  # a type in stores that the fixtures keep
    "src/perdure/server/uvicorn.py: tell",  # perdure.server.serve
    "src/perdure/testing/conformance/suite.py: tell",  # perdure.testing.conformance.validate
}
"""Parameters that users may pass by keyword, and what is stored."""
DIALECT_IN_PROSE = re.compile(
    r"\b(?:whoever|somebody|nobody|heed(?:s|ed)?|anew|mend(?:s|ed|ing)?|tells?|told|telling|hears?|heard|said of"
    r"|lets? go|go(?:es)? on|went on|come to be|of whatever kind)\b",
    re.IGNORECASE,
)
CODE = re.compile(r"`[^`]*`")
MESSAGE_WORDS = {"say", "says"}
"""Of these, words that a sentence may use: "the server says 503"."""
PARTICIPLE = re.compile(
    r"[a-z]+([^e]ed|en|wn)|(un|re|over)?(agreed|begun|bent|bound|bought|brought|built|caught|dealt|done|fed|felt|found"
    r"|fought|freed|gone|got|had|heard|held|hung|kept|laid|led|left|lent|lit|lost|made|meant|met|paid|said|sat|sent|shot"
    r"|slept|sold|sought|spent|spun|stood|struck|stuck|swept|swung|taught|thought|told|torn|understood|won|worn|wound)"
)
"""A name of one word that does not state what a function does. It omits forms that are also verbs: cut, feed."""
PARTICIPLES_THAT_STAY = {
    # Verbs and nouns that only look like participles.
    *("children", "len", "listen", "open", "own", "shorten", "token", "when"),
    # Names and members of what tests/doors lists; WorkflowEvent follows Agent Framework.
    *("CheckpointDiff.added", "CheckpointDiff.changed", "CheckpointDiff.removed", "EventRecorder.seen"),
    "remembered",
    *("ScriptedExecutor.received", "ThreadFits.refused", "WorkflowEvent.failed", "WorkflowEvent.started"),
    # The caller reports an outcome with these.
    *("CircuitBreaker.failed", "CircuitBreaker.succeeded"),
}
"""A word for any function of that name, or `Qualname`."""
VAGUE_VARIABLES = {"one", "ones", "found", "given", "told"}
PUBLIC_PARAMETERS = {
    "src/perdure/errors/running.py: found",  # ThreadConflict, NewerFormat
    "src/perdure/errors/base.py: given",  # InputMismatch
}
"""Parameters of public errors, which users may pass by keyword."""
LOGGERS = {"logger", "log", "_log", "_logger"}


@pytest.fixture(autouse=True, scope="module")
def _no_garbage_is_collected() -> Iterator[None]:
    """The trees of all files stay: looking for garbage among their million nodes took two thirds of the time."""
    gc.disable()
    yield
    gc.enable()


def words_of(name: str) -> set[str]:
    return set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().strip("_").split("_"))


def names_in(path: Path) -> Iterator[str]:
    """Every name that the file defines, and its own."""
    yield path.stem
    yield from (name.rpartition(".")[2] for name, _ in blocks(path))
    yield from variables_of(path)


def test_names_use_the_words_of_the_field() -> None:
    wrong = {f"{path.relative_to(ROOT)}: {name}" for path in ALL for name in names_in(path) if words_of(name) & DIALECT}
    assert wrong == PUBLIC_NAMES, "use a word of the field (CONTRIBUTING.md); or an exception is not needed"


def test_names_of_tests_have_at_most_70_characters() -> None:
    names = {name.rpartition(".")[2]: path for path in ALL for name, _ in blocks(path)}
    assert not {name: path for name, path in names.items() if name.startswith("test_") and len(name) > TEST_NAME}


def prose_in(path: Path) -> Iterator[str]:
    """Docstrings, those of constants too, and comments."""
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    yield from re.findall(r"(?:^|\s\s)# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_docstrings_and_comments_use_the_words_of_the_field() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]!r} in {text.strip()[:60]!r}"
        for path in ALL
        for text in prose_in(path)
        for match in DIALECT_IN_PROSE.finditer(CODE.sub("", text))
    ]
    assert not wrong, "\n".join(wrong)


def participles_of(path: Path) -> Iterator[str]:
    """Functions of the file that a participle names: the word if it stays everywhere, otherwise the dotted name."""
    for name, node in blocks(path):
        word = name.rpartition(".")[2].strip("_")
        if isinstance(node, FUNCTIONS) and PARTICIPLE.fullmatch(word):
            yield word if word in PARTICIPLES_THAT_STAY else name


def test_functions_are_not_named_by_a_bare_participle() -> None:
    names = {name: relative(path) for path in FILES for name in participles_of(path)}
    wrong = [f"{file}: {name}" for name, file in names.items() if name not in PARTICIPLES_THAT_STAY]
    assert not wrong, "begin with a verb, is_ or has_, or use a noun:\n" + "\n".join(wrong)
    assert not PARTICIPLES_THAT_STAY - names.keys(), "exceptions that are not needed"


def variables_of(path: Path) -> Iterator[str]:
    """Variables, parameters, fields, attributes and aliases that the file defines."""
    for node in nodes_of(path):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case _:
                pass


def test_variables_are_named_by_a_noun() -> None:
    names = {f"{path.relative_to(ROOT)}: {name}" for path in ALL for name in variables_of(path)}
    wrong = {name for name in names if name.rpartition(" ")[2].strip("_") in VAGUE_VARIABLES}
    assert wrong == PUBLIC_PARAMETERS, "name the thing: row, checkpoint, entry; or an exception is not needed"


def spoken_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Texts of errors and log lines: string arguments of `raise X(...)` and of calls on a logger."""
    for node in nodes_of(path):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call):
            continue
        is_log = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).rpartition(".")[2] in LOGGERS
        if isinstance(node, ast.Raise) or is_log:
            for part in ast.walk(call):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_errors_and_log_lines_use_the_words_of_the_field() -> None:
    wrong = [
        f"{relative(path)}:{line}: {text}"
        for path in FILES
        for line, text in spoken_texts(path)
        if DIALECT & set(re.findall(r"[a-z]+", text.lower())) - MESSAGE_WORDS
    ]
    assert not wrong, "\n".join(wrong)


NAMES_OF_THE_REFERENCE = {"BaseAgent", "BaseGroupChatOrchestrator", "StandardMagenticManager"}
"""Names that users of Agent Framework know."""


def test_names_of_classes_and_modules_are_not_vague() -> None:
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
