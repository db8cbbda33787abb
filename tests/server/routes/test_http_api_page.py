"""docs/reference/http-api.md: its commands answer as it shows, and its tables have every route."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.docs.following import Block, blocks_of, python_blocks
from tests.server.routes.calling import called
from tests.server.serving import Server, project

from perdure.server.http.responses import COMMON_ERRORS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "http-api.md"
SHOWN_URL = "http://127.0.0.1:8000"
ROW = re.compile(
    r"^\| `(?P<method>[A-Z]+) (?P<path>/\S+)` \| `(?P<scope>[^`]+)` \|.*\| (?P<answers>[\d, ]*)\|$", re.MULTILINE
)
ALWAYS = re.compile(r"^Any route may answer ([\d, and]+)\.", re.MULTILINE)
LIMIT_SECONDS = 60.0


def examples() -> list[tuple[Block, Block]]:
    """Returns each command with the output that the page shows."""
    blocks = list(blocks_of(PAGE))
    return [(command, output) for command, output in pairwise(blocks) if command.language == "bash"]


@pytest.fixture
def server_of_the_page(tmp_path: Path) -> Any:
    folder = project(tmp_path)
    (folder / "flows.py").write_text(python_blocks(PAGE)[0].code, encoding="utf-8")
    config = json.loads((folder / "perdure.json").read_text(encoding="utf-8"))
    (folder / "perdure.json").write_text(json.dumps({**config, "workflows": {"review": "flows:review"}}))
    with Server(folder) as server:
        yield server


def test_every_command_of_the_page_answers_as_it_shows(server_of_the_page: Server) -> None:
    for command, shown in examples():
        place = f"http-api.md:{command.line}"
        printed = run(command.code.replace(SHOWN_URL, server_of_the_page.url), server_of_the_page.folder, shown)
        if shown.language == "json":
            assert is_as_shown(last_json(printed), json.loads(shown.code)), f"{place}: {printed}"
        else:
            assert shows(shown.code, printed), f"{place}: {printed}"


def run(command: str, folder: Path, shown: Block) -> str:
    """Returns the output of the command. The output of an endless stream ends where the page ends."""
    process = subprocess.Popen(
        ["bash", "-ec", command], cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if "/events" in command and shows(shown.code, printed):
                break
        else:
            assert process.wait(LIMIT_SECONDS) == 0, printed
            return printed
        os.killpg(process.pid, signal.SIGKILL)
    return printed


def last_json(printed: str) -> Any:
    """Returns the last of several JSON values."""
    last, at = None, 0
    while at < len(printed):
        last, at = json.JSONDecoder().raw_decode(printed, at)
    return last


def shows(shown: str, printed: str) -> bool:
    """`...` stands for anything, at the end too."""
    pattern = re.escape(shown.strip()).replace(re.escape("..."), ".*?")
    return re.match(pattern, printed, re.DOTALL) is not None


def is_as_shown(got: Any, shown: Any) -> bool:
    """`"..."` stands for any value, and as a key for any others."""
    if shown == "...":
        return True
    if isinstance(shown, dict) and isinstance(got, dict):
        named = {key: value for key, value in shown.items() if key != "..."}
        if not ("..." in shown or set(got) == set(named)):
            return False
        return all(key in got and is_as_shown(got[key], value) for key, value in named.items())
    if isinstance(shown, list) and isinstance(got, list):
        return len(got) == len(shown) and all(map(is_as_shown, got, shown))
    return bool(got == shown)


async def test_tables_of_the_page_list_every_route_with_scope_and_statuses() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [sentence] = ALWAYS.findall(text)
    always = {int(status) for status in re.findall(r"\d+", sentence)}
    assert always == set(COMMON_ERRORS)
    written = {
        (row["method"], row["path"]): (row["scope"], {int(status) for status in re.findall(r"\d+", row["answers"])})
        for row in ROW.finditer(text)
    }
    async with called("remembering") as app:
        document = (await app.ask("GET", "/openapi.json")).json()
        served: dict[tuple[str, str], tuple[str, set[int]]] = {}
        for route in app.app.routes.routes:
            path = re.sub(r":\w+}", "}", route.path)
            for handler in getattr(route, "route_handlers", None) or [route.route_handler]:
                for method in getattr(handler, "http_methods", {"WS"}) - {"OPTIONS"}:
                    known = document["paths"].get(path, {}).get(method.lower(), {"responses": {}})
                    answers = {int(status) for status in known["responses"]} - always
                    if method == "GET" and path in ("/openapi.json", "/docs"):
                        answers = {200}
                    served[method, path] = (handler.opt["scope"], answers)
    assert written == served
