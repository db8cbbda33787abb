"""Executors of a module without `from __future__ import annotations`: its annotations are types, not text."""

from typing import Never

from perdure import Executor, WorkflowContext, handler, response_handler


class Real(Executor):
    @handler
    async def words(self, message: str, ctx: WorkflowContext[int, str]) -> None: ...

    @handler
    async def quoted(self, message: "Later", ctx: "WorkflowContext[Later]") -> None: ...

    @response_handler
    async def answer(self, original_request: str, response: bool, ctx: WorkflowContext[Never, str]) -> None: ...


class Later:
    """Defined after the class that names it."""
