"""Forks, rewinds and answers of a workflow to checkpoints of an older version: migrated, as a run would have them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.changing import Case, Ticket
from tests.promises.stages import Sink, Stage, Tally

from perdure import (
    Executor,
    IncompatibleWorkflow,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from perdure.checkpoints.migration.stored_form import StoredForm
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.commands.run import find_request


def reviewer_is_editor(stored: StoredForm) -> None:
    stored.rename_executor("reviewer", "editor")


def build(storage: Any, executor_id: str, *migrations: Any) -> Workflow:
    start = Tally(executor_id, Stage())
    builder = WorkflowBuilder(
        name="work", start_executor=start, checkpoint_storage=storage, migrations=list(migrations)
    )
    return builder.add_chain([start, Sink("end")]).build()


async def test_fork_of_an_older_checkpoint_is_migrated(any_storage: Any) -> None:
    old, new = build(any_storage, "reviewer"), build(any_storage, "editor", reviewer_is_editor)
    await old.run("x", thread_id="t")
    target = (await old.history("t"))[0]
    fork = await new.fork(target, thread_id="fork")
    assert (fork.thread_id, fork.previous_checkpoint_id) == ("fork", target.checkpoint_id)
    assert (await new.run("y", thread_id="fork")).get_outputs() == ["editor=2"]
    with pytest.raises(IncompatibleWorkflow, match="executor 'reviewer' is gone"):
        await build(any_storage, "editor").fork(target)


async def test_migrated_thread_rewinds_to_before_its_migration(any_storage: Any) -> None:
    old, new = build(any_storage, "reviewer"), build(any_storage, "editor", reviewer_is_editor)
    await old.run("x", thread_id="t")
    target = (await old.history("t"))[0]
    await old.run("y", thread_id="t")
    assert (await new.run("z", thread_id="t")).get_outputs() == ["editor=3"]
    made = await new.rewind("t", target)
    assert (await new.history("t"))[0] == made
    assert (await new.run("z", thread_id="t")).get_outputs() == ["editor=2"]


class Asking(Executor):
    def __init__(self, kind: type[Any]) -> None:
        super().__init__("asking")
        self.kind = kind

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(self.kind(message), str, request_id="q")

    @response_handler
    async def answered(self, question: Any, answer: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{type(question).__name__} {question.text}: {answer}")


def ticket_is_case(stored: StoredForm) -> None:
    stored.rename_type("shop:Ticket", Case)


async def test_request_of_an_older_version_can_be_answered(storage: StoreCheckpointStorage) -> None:
    def asking(kind: type[Any], *migrations: Any) -> Workflow:
        options: dict[str, Any] = {"allowed_types": [kind], "migrations": list(migrations)}
        return WorkflowBuilder(name="work", start_executor=Asking(kind), checkpoint_storage=storage, **options).build()

    await asking(Ticket).run("x", thread_id="t")
    new = asking(Case, ticket_is_case)
    request = await find_request(storage, new, "t", "q")
    assert request is not None and request.data == Case("x")
    assert (await new.run(responses={"q": "yes"}, thread_id="t")).get_outputs() == ["Case x: yes"]
