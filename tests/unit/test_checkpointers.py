"""Storages under the names that users of AgentFlow know."""

from __future__ import annotations

import pytest

from perdure import PostgresCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from perdure.checkpointers import InMemoryCheckpointer, PgCheckpointer


@executor(id="greet")
async def greet(name: str, ctx: WorkflowContext[str, str]) -> None:
    names = [*ctx.get_state("names", []), name]
    ctx.set_state("names", names)
    await ctx.yield_output(f"{len(names)}: {name}")


@pytest.fixture(params=["memory", "postgres", "postgres with redis"])
def checkpointer(request: pytest.FixtureRequest) -> InMemoryCheckpointer | PgCheckpointer:
    if request.param == "memory":
        return InMemoryCheckpointer()
    dsn, schema = request.getfixturevalue("postgres_place")
    redis_url = request.getfixturevalue("valkey_url") if "redis" in request.param else None
    return PgCheckpointer(postgres_dsn=dsn, redis_url=redis_url, schema=schema)


async def test_a_checkpointer_is_used_wherever_a_storage_is(
    checkpointer: InMemoryCheckpointer | PgCheckpointer,
) -> None:
    await checkpointer.asetup()
    for number, name in enumerate(["ada", "grace"], 1):
        workflow = WorkflowBuilder(name="greeter", start_executor=greet, checkpoint_storage=checkpointer).build()
        result = await workflow.run(name, thread_id="demo")
        assert result.get_outputs() == [f"{number}: {name}"]
    assert [thread.thread_id for thread in await checkpointer.list_threads()] == ["demo"]
    await checkpointer.arelease()


def test_redis_is_optional_and_nothing_is_opened_yet() -> None:
    assert isinstance(PgCheckpointer("postgresql://user:secret@db/agentflow"), PostgresCheckpointStorage)
