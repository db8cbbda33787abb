"""The "common failure modes" of the AgentFlow documentation: each test causes one, sees its report, and repairs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.databases.fixtures import Place
from tests.databases.proxy import Proxy
from tests.e2e.command import perdure
from tests.server.serving import Server, eventually, project
from tests.server.steps import FOLLOW_UP, INVOKE, THREADS, answer, assert_is_kept, assert_remembers, typed

HELLO = {"role": "user", "content": "hello"}
DEVELOPMENT = """from perdure.checkpointers import InMemoryCheckpointer

my_checkpointer = InMemoryCheckpointer()
"""
PRODUCTION = """from perdure.checkpointers import PgCheckpointer

my_checkpointer = PgCheckpointer(
    postgres_dsn="{dsn}",
    redis_url="{redis_url}",
)
"""
"""As the document has it, but for the package and the servers."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path / "demo")


# ---------------------------------------------------------------- thread history disappears after restart


def test_in_memory_history_is_lost_on_restart_with_a_prior_warning(
    folder: Path, postgres_dsn: str, valkey_url: str
) -> None:
    dependencies = folder / "graph" / "dependencies.py"
    dependencies.write_text(DEVELOPMENT, encoding="utf-8")
    with Server(folder) as server:
        typed(INVOKE, server)
        assert_remembers(server, "Alice")
        assert "WARNING" in server.log and "Threads are kept in memory" in server.log
        server.kill()
        server.start()
        assert typed(THREADS, server)["data"]["threads"] == []
        assert answer(typed(FOLLOW_UP, server)) == "I do not know your name yet."
        server.kill()

        text = PRODUCTION.format(dsn=postgres_dsn, redis_url=valkey_url)
        dependencies.write_text(text, encoding="utf-8")
        server.start()
        typed(INVOKE, server)
        server.kill()
        server.start()
        assert_remembers(server, "Alice")
        assert_is_kept(server, "Alice", questions=1)


def test_in_memory_history_is_rejected_on_a_public_address(folder: Path) -> None:
    (folder / "graph" / "dependencies.py").write_text(DEVELOPMENT, encoding="utf-8")
    config = {**json.loads((folder / "perdure.json").read_text()), "auth": {"method": "api_key"}}
    (folder / "perdure.json").write_text(json.dumps(config))
    server = Server(folder, arguments=("--host", "0.0.0.0"))
    server.begin()
    assert server.wait() == 1
    assert "threads are kept in memory" in server.log and "Traceback" not in server.log
    assert "sqlite:///perdure.db or postgresql://" in server.log


# ---------------------------------------------------------------- one worker sees state and another does not


def test_instances_with_separate_files_share_nothing_and_doctor_shows_why(tmp_path: Path) -> None:
    folders = [project(tmp_path / name) for name in ("one", "other")]
    with Server(folders[0]) as first, Server(folders[1]) as second:
        typed(INVOKE, first)
        assert_remembers(first, "Alice")
        assert typed(THREADS, second)["data"]["threads"] == []
        assert answer(typed(FOLLOW_UP, second)) == "I do not know your name yet."
        assert [server.get("/readyz").json()["data"]["checks"] for server in (first, second)] == [{"storage": "ok"}] * 2
    output = perdure("doctor", folder=folders[1], store=None).stdout
    assert str(folders[1] / "perdure.db") in output
    assert str(folders[0]) not in output


# ---------------------------------------------------------------- /v1/threads returns errors


@pytest.fixture
def servers(postgres_place: Place, valkey_url: str) -> Iterator[tuple[Proxy, Proxy]]:
    with Proxy(postgres_place.dsn) as postgres, Proxy(valkey_url) as valkey:
        yield postgres, valkey


def test_postgresql_outage_is_reported_and_the_server_recovers_after_it(
    folder: Path, servers: tuple[Proxy, Proxy], postgres_place: Place
) -> None:
    postgres, valkey = servers
    postgres.refuse()
    env = {"DATABASE_URL": f"{postgres.url}?schema={postgres_place.schema}", "REDIS_URL": valkey.url}
    with Server(folder, env=env) as server:
        with ThreadPoolExecutor(4) as clients:  # each of them waits a while for the server to come back
            asked = [clients.submit(server.get, path) for path in ("/v1/threads", "/v1/threads/x/state", "/readyz")]
            asked.append(clients.submit(server.post, "/v1/graph/invoke", {"messages": [HELLO]}))
            threads, state, ready, invoked = responses = [future.result() for future in asked]
        assert [response.status_code for response in responses] == [503] * 4
        assert [response.json()["error"]["code"] for response in (threads, state, invoked)] == ["store_unavailable"] * 3
        assert ready.json()["data"] == {"is_ready": False, "checks": {"postgresql": "unavailable", "redis": "ok"}}
        assert server.get("/healthz").status_code == 200  # a restart of the process does not help
        eventually(lambda: f":{urlsplit(postgres.url).port}" in server.log)  # the DSN to look at

        postgres.admit()
        typed(INVOKE, server)
        assert_remembers(server, "Alice")
        assert server.get("/readyz").json()["data"] == {"is_ready": True, "checks": {"postgresql": "ok", "redis": "ok"}}
        output = "".join(response.text for response in responses) + server.log
    secrets = {urlsplit(url).password for url in (postgres.url, valkey.url)} - {None}
    assert [secret for secret in secrets if secret and secret in output] == []


def test_server_works_without_redis_and_readyz_reports_the_outage(
    folder: Path, servers: tuple[Proxy, Proxy], postgres_place: Place
) -> None:
    postgres, valkey = servers
    env = {"DATABASE_URL": f"{postgres.url}?schema={postgres_place.schema}", "REDIS_URL": valkey.url}
    with Server(folder, env=env) as server:
        typed(INVOKE, server)
        valkey.refuse()
        assert_remembers(server, "Alice")
        assert_is_kept(server, "Alice", questions=1)
        ready = server.get("/readyz")
        checks = {"postgresql": "ok", "redis": "unavailable"}
        assert (ready.status_code, ready.json()["data"]) == (200, {"is_ready": True, "checks": checks})
        valkey.admit()
        assert eventually(lambda: server.get("/readyz").json()["data"]["checks"]["redis"] == "ok")


# ---------------------------------------------------------------- request works but no thread data appears later


def test_each_request_without_a_thread_id_gets_the_id_of_a_new_thread(folder: Path) -> None:
    def send_text(server: Server, text: str, **config: str) -> tuple[str, str, bool]:
        response = server.post("/v1/graph/invoke", {"messages": [{"role": "user", "content": text}], "config": config})
        meta = response.json()["data"]["meta"]
        return answer(response.json()), meta["thread_id"], meta["is_new_thread"]

    with Server(folder) as server:
        _, first, is_new = send_text(server, "My name is Alice")
        assert is_new
        reply, second, is_new = send_text(server, "What is my name?")
        assert (reply, is_new) == ("I do not know your name yet.", True)
        assert first != second
        assert {thread["thread_id"] for thread in typed(THREADS, server)["data"]["threads"]} == {first, second}
        assert send_text(server, "What is my name?", thread_id=first) == ("Your name is Alice.", first, False)
        assert len(server.get(f"/v1/threads/{first}/messages").json()["data"]["messages"]) == 4
