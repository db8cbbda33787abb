"""Agents of Agent Framework, their sessions and messages survive SIGKILL, in both versions and on both databases."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.compat.test_beside_agent_framework import HERE, VERSIONS, environment_of
from tests.databases.fixtures import Place

TASK, AGAIN = ["user", "task", None], ["user", "again", None]
WRITER_1, CRITIC_2 = ["assistant", "writer 1", "writer"], ["assistant", "critic 2", "critic"]
SECOND_ROUND = [TASK, WRITER_1, CRITIC_2, AGAIN]


async def run_until_killed_and_resume(version: str, folder: Path, url: str) -> dict[str, Any]:
    """What the second process prints."""
    output = b""
    for expected in (-signal.SIGKILL, 0):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(HERE / "killed.py"), str(folder), url),
            env=environment_of(version),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        assert process.returncode == expected, errors.decode()
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


@pytest.mark.parametrize("version", VERSIONS)
async def test_killed_team_resumes_with_its_sessions_and_messages(
    version: str, tmp_path: Path, postgres_place: Place
) -> None:
    dsn, schema = postgres_place
    urls = [f"sqlite:///{tmp_path}/threads.db", f"{dsn}{'&' if '?' in dsn else '?'}schema={schema}"]
    folders = [tmp_path / name for name in ("sqlite", "postgres")]
    for folder in folders:
        folder.mkdir()
    runs = [run_until_killed_and_resume(version, *place) for place in zip(folders, urls, strict=True)]
    for result in await asyncio.gather(*runs):
        # The writer's first turn is recorded. The critic's first turn was killed, so it runs again.
        assert result["seen"]["writer"] == [[TASK], SECOND_ROUND]
        killed, *turns = result["seen"]["critic"]
        assert killed == turns[0] == [TASK, WRITER_1]
        assert turns[1] == [*SECOND_ROUND, ["assistant", "writer 2", "writer"]]
        task, *conversation = result["output"]
        assert (task, {package for package, _ in conversation}) == (["agent_framework", "task"], {"perdure"})
        assert [text for _, text in conversation[2:]] == ["critic 2", "again", "writer 2", "critic 3"]
        assert (result["task"]["message_id"], result["task"]["additional_properties"]) == ("m1", {"k": 1})
        assert result["annotations"] == [{"type": "citation", "title": "t"}]
        assert result["session"] == ["mine", "kept"]
