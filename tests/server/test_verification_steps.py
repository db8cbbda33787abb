"""The verification steps of the AgentFlow documentation, with curl, against what `perdure init` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chance import draw_seed
from tests.databases.fixtures import Place
from tests.server.serving import Server, project
from tests.server.steps import FOLLOW_UP, INVOKE, MESSAGES, answer, assert_is_kept, assert_remembers, drawn_name, typed


@pytest.fixture
def name() -> str:
    drawn = drawn_name(draw_seed())
    print(f"{drawn!r}")
    return drawn


def test_three_steps_work_as_printed_and_after_a_kill_on_sqlite(tmp_path: Path, name: str) -> None:
    with Server(project(tmp_path / "demo"), fresh=True) as server:
        reply = typed(INVOKE, server, name)
        assert answer(reply) == f"I will remember that your name is {name}."
        assert reply["data"]["meta"]["thread_id"] == "demo-thread"
        assert reply["data"]["meta"]["is_new_thread"]
        assert_remembers(server, name)
        assert_is_kept(server, name, questions=1)

        server.kill()
        server.start()
        assert_is_kept(server, name, questions=1)
        assert_remembers(server, name)
        assert_is_kept(server, name, questions=2)

        by_httpx = typed(FOLLOW_UP, server, with_curl=False)
        assert answer(by_httpx) == f"Your name is {name}."
        assert typed(MESSAGES, server, with_curl=False)["data"] == typed(MESSAGES, server)["data"]


def test_steps_work_across_two_instances_on_postgresql_and_after_kills(
    tmp_path: Path, postgres_place: Place, name: str
) -> None:
    folder = project(tmp_path / "demo")
    env = {"DATABASE_URL": f"{postgres_place.dsn}?schema={postgres_place.schema}"}
    with Server(folder, env=env) as first, Server(folder, env=env) as second:
        assert first.port != second.port
        assert answer(typed(INVOKE, first, name)) == f"I will remember that your name is {name}."
        assert_remembers(second, name)
        for server in (first, second):
            assert_is_kept(server, name, questions=1)

        first.kill()
        second.kill()
        first.start()
        assert_remembers(first, name)
        second.start()
        assert_is_kept(second, name, questions=2)
