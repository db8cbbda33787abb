"""Threads that nobody moves though they have something to do: those of a server that was killed, and sleepers."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.events import WorkflowRunState
from holdfast.log import get_logger
from holdfast.records import ThreadInfo
from holdfast.server.problems import Problem

if TYPE_CHECKING:
    from holdfast.server.service import Service

logger = get_logger("server")

INTERRUPTED = frozenset({WorkflowRunState.IN_PROGRESS.value, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS.value})
LOOK_SECONDS = 1.0
"""How often it looks for threads whose time has come."""
LOOKS_BETWEEN = 15
"""Every so many looks also for threads of an instance that died meanwhile: its leases have run out by then."""
AT_ONCE = 100


class Recovery:
    """Resumes threads: once when the server starts, and then those whose time has come."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._task: asyncio.Task[None] | None = None
        self._unknown: set[str] = set()
        """Workflows that were told to be missing."""

    async def start(self) -> None:
        """Begin with what was interrupted. A storage that cannot be reached yet is asked again later."""
        found = 0
        try:
            found = await self._resume_interrupted()
        except HoldfastError as error:
            logger.warning("interrupted threads could not be listed: %s", error)
        if found:
            logger.info("%d interrupted threads go on", found)
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="holdfast timers")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _resume_interrupted(self) -> int:
        threads = await self._service.storage.list_threads(statuses=INTERRUPTED)
        return sum([self._resume(info) for info in threads if info.run_id is None])

    async def _watch(self) -> None:
        storage = self._service.storage
        for look in itertools.count(1):
            await asyncio.sleep(LOOK_SECONDS)
            try:
                async with storage.access("list threads whose time has come"):
                    due = await storage.store.due(datetime.now(UTC), AT_ONCE)
                for info in due:
                    self._resume(info)
                if look % LOOKS_BETWEEN == 0:
                    await self._resume_interrupted()
            except HoldfastError as error:
                logger.warning("threads that wait could not be listed: %s", type(error).__name__)

    def _resume(self, info: ThreadInfo) -> bool:
        """Whether its run was started. If another instance was quicker, that run ends by itself."""
        service = self._service
        served = service.registry.by_workflow_name(info.workflow_name)
        if served is None:
            if info.workflow_name not in self._unknown:
                self._unknown.add(info.workflow_name)
                logger.warning("threads of workflow %r wait: this server does not have it", info.workflow_name)
            return False
        if service.runs.of_thread(info.thread_id) is not None:
            return False
        try:
            service.runs.start(served.workflow, info.thread_id)
        except Problem:  # full, or stopping: it is found again
            return False
        return True
