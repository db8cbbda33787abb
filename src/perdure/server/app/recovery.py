"""Threads that nobody moves though they have something to do: those of a server that was killed, and sleepers."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perdure.errors import PerdureError, RunInterrupted, StorageFailed, ThreadBusy, ThreadConflict
from perdure.events import WorkflowRunState
from perdure.log import get_logger
from perdure.records import ThreadInfo
from perdure.server.problems import HttpProblem
from perdure.server.runs.runs import ServedRun

if TYPE_CHECKING:
    from perdure.server.app.service import Service


logger = get_logger("server")

INTERRUPTED = frozenset({WorkflowRunState.IN_PROGRESS.value, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS.value})
LOOK_SECONDS = 1.0
"""How often it looks for threads whose time has come."""
LOOKS_BETWEEN = 15
"""Every so many looks also for threads of an instance that died meanwhile: its leases have run out by then."""
AT_ONCE = 100


class Recovery:
    """Resumes threads: when the server starts those that were interrupted, and then those whose time has come."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        """Whether it was told that the storage cannot be reached."""
        self._stuck: dict[str, int] = {}
        """Threads that could not be resumed, and where they stood."""
        self._unknown: set[str] = set()
        """Workflows that were told to be missing."""

    def start(self) -> None:
        """Nobody waits for the first look: a server whose storage is away answers that it is."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="perdure recovery")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        must_look_for_interrupted = True
        for look in itertools.count(1):
            try:
                if must_look_for_interrupted or look % LOOKS_BETWEEN == 0:
                    await self._resume_interrupted()
                    must_look_for_interrupted = False
                if look % LOOKS_BETWEEN == 0:
                    await self._end_those_taken_away()
                await self._resume_due()
            except Exception as error:  # noqa: BLE001  # whatever a driver raises: the next look may be luckier
                self._tell(error)
            else:
                self._tell(None)
            await asyncio.sleep(LOOK_SECONDS)

    def _tell(self, error: Exception | None) -> None:
        """When it begins, and when it is over."""
        if error is not None and not self._is_away:
            said = error if isinstance(error, PerdureError) else type(error).__name__  # ours hold no secrets
            logger.warning("threads that wait cannot be looked for: %s", said)
        elif error is None and self._is_away:
            logger.info("the storage can be reached again")
        self._is_away = error is not None

    async def _resume_interrupted(self) -> None:
        threads = await self._service.storage.list_threads(statuses=INTERRUPTED)
        self._stuck = {key: self._stuck[key] for info in threads if (key := info.thread_id) in self._stuck}
        found = sum([self._resume(info) for info in threads if info.run_id is None])
        if found:
            logger.info("%d interrupted threads are resumed", found)

    async def _resume_due(self) -> None:
        storage = self._service.storage
        async with storage.access("list threads whose time has come"):
            due = await storage.store.due(datetime.now(UTC), AT_ONCE)
        for info in due:
            self._resume(info)

    async def _end_those_taken_away(self) -> None:
        """Runs whose thread another instance has taken: nobody will keep what they do."""
        storage = self._service.storage
        for served in self._service.runs.under_way:
            async with storage.access("find a thread"):
                found = await storage.store.threads(thread_id=served.thread_id, limit=1)
            is_theirs = not found or found[0].run_id == served.run_id
            if not is_theirs and served.run is not None:
                logger.info("run %s ends: its thread was taken by another", served.run_id)
                served.run.interrupt()

    def _resume(self, info: ThreadInfo) -> bool:
        """Whether its run was started. If another instance was quicker, that run ends by itself."""
        service = self._service
        served = service.registry.by_workflow_name(info.workflow_name)
        if served is None:
            if info.workflow_name not in self._unknown:
                self._unknown.add(info.workflow_name)
                logger.warning("threads of workflow %r wait: this server does not have it", info.workflow_name)
            return False
        if service.runs.of_thread(info.thread_id) is not None or self._stuck.get(info.thread_id) == info.number:
            return False
        try:
            run = service.runs.start(served.workflow, info.thread_id)
        except HttpProblem:  # full, or stopping: it is found again
            return False
        if run.task is not None:
            run.task.add_done_callback(lambda _: self._note(run, info))
        return True

    def _note(self, run: ServedRun, info: ThreadInfo) -> None:
        """One that cannot go on, since its workflow was changed, is told once, and left alone until it moves."""
        if run.is_refused and not isinstance(run.error, ThreadBusy | ThreadConflict | RunInterrupted | StorageFailed):
            self._stuck[info.thread_id] = info.number
            logger.warning("interrupted thread %s cannot go on: %s", info.thread_id, run.error)
