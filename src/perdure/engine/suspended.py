"""Telling a suspension from a cancellation: both cancel the task of a handler, and only one of them ends the run."""

from __future__ import annotations

import asyncio

from perdure.engine.context import DeliveryContext


def take_off_suspension(context: DeliveryContext) -> bool:
    """Whether the delivery was suspended. That cancels the task of its handler, which may be the run's own: it must not
    look as if somebody had cancelled the run."""
    if context.used is None or not context.used.is_suspended:
        return False
    task = asyncio.current_task()
    if task is not None and task is context.task and task.cancelling():
        task.uncancel()
    return True


def is_error_of_suspension(error: BaseException, context: DeliveryContext) -> bool:
    """Code may turn its cancellation into an error of its own. What a suspended delivery did is dropped anyway, and so
    is that: should it have another reason, it is raised again."""
    if not isinstance(error, (Exception, BaseExceptionGroup)) or context.delivery.broken is not None:
        return False
    return take_off_suspension(context)
