"""`invoke`, `stream` and the socket: a conversation's next turn, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from perdure.agents.conversation.message import Message
from perdure.engine.run.result import WorkflowRunResult
from perdure.errors import IncompatibleWorkflow, NoPendingRequests
from perdure.events import WorkflowEvent
from perdure.names import new_thread_id
from perdure.server.agentflow.messages import MessageBody, context_of, messages_from_client, messages_to_client
from perdure.server.agentflow.states import changed_state, state_to_client
from perdure.server.problems import HttpProblem
from perdure.server.runs.runs import ServedRun
from perdure.server.runs.start import failure_of, start
from perdure.server.threads.conversation import SHOWN_TURNS, conversation, said_by, with_run_ids
from perdure.server.threads.inputs import message_of_conversation
from perdure.server.threads.naming import LONGEST_NAME
from perdure.server.threads.tenancy import check_id
from perdure.server.threads.threads import Threads
from perdure.workflows.workflow import Workflow

Granularity = Literal["full", "partial", "low"]


class InvokeBody(msgspec.Struct, frozen=True):
    """A turn: messages, or the answer to what a thread waits for."""

    messages: list[MessageBody] = []
    resume: Any | UnsetType = UNSET
    """The answer to the one pending request, or answers by request id."""
    initial_state: dict[str, Any] | None = None
    """Merged into the shared state before the turn."""
    config: dict[str, Any] = {}
    """`thread_id`, `run_id`, `thread_name`, `thread_meta`, `on_busy`."""
    recursion_limit: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Supersteps at most; the workflow's own limit where it is left out."""
    response_granularity: Granularity = "low"


class InvokedTurn:
    """One turn of a conversation."""

    def __init__(self, threads: Threads, body: InvokeBody) -> None:
        self.threads = threads
        self.body = body
        self.workflow: Workflow = threads.service.workflow(None)
        given = body.config.get("thread_id")
        if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
            raise HttpProblem(422, "invalid_id", "config.thread_id must be a text.", field="config.thread_id")
        self.thread_id = new_thread_id() if given is None else str(given)
        self.stored_id = threads.space.inside(self.thread_id)
        self.served: ServedRun | None = None
        self._name: str | None = None
        self._told = 0
        """Messages of its outputs so far."""

    async def begin(self, listener: Callable[[WorkflowEvent], None] | None = None) -> ServedRun:
        """Raises HttpProblem, and what refuses a run."""
        body = self.body
        is_resumed = body.resume is not UNSET
        if is_resumed == bool(body.messages):
            raise HttpProblem(
                422, "invalid_body", "Give messages, or resume: one of them. Nothing was started.", field="messages"
            )
        message = None
        if not is_resumed:
            message = message_of_conversation(self.workflow, self._messages())
        on_busy = body.config.get("on_busy", "reject")
        if on_busy not in ("reject", "enqueue"):
            raise HttpProblem(422, "invalid_body", "config.on_busy is reject or enqueue.", field="config.on_busy")
        run_id = body.config.get("run_id")
        if run_id is not None:
            check_id("config.run_id", run_id if isinstance(run_id, str) else "")
        responses = await self._answers() if is_resumed else None
        self._check_names()
        options: dict[str, Any] = {
            "responses": responses,
            "on_busy": on_busy,
            "listener": listener,
            "run_id": run_id,
            "max_iterations": body.recursion_limit,
            "afterwards": self._name_thread,
        }
        if body.initial_state:
            options["change_state"] = partial(changed_state, given=body.initial_state)
        try:
            self.served = await start(self.threads, self.workflow, self.stored_id, message, **options)
        except IncompatibleWorkflow:
            # Seldom enough to be asked only now: the thread is one of another workflow that is served.
            _, other = await self.threads.workflow(self.thread_id)
            if other is self.workflow:
                raise
            self.workflow = other
            message = message_of_conversation(other, self._messages())
            self.served = await start(self.threads, other, self.stored_id, message, **options)
        return self.served

    def _messages(self) -> list[Message]:
        """What is said now, after what the initial state says was said before."""
        before = context_of(self.body.initial_state or {}, "initial_state.context")
        told = messages_from_client(before, "initial_state.context")
        return [*told, *messages_from_client(self.body.messages)]

    def _check_names(self) -> None:
        name, metadata = self.body.config.get("thread_name"), self.body.config.get("thread_meta")
        if name is not None and (not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME):
            said = f"config.thread_name must be a text of 1 to {LONGEST_NAME} characters."
            raise HttpProblem(422, "invalid_body", said, field="config.thread_name")
        if metadata is not None and not isinstance(metadata, dict):
            raise HttpProblem(422, "invalid_body", "config.thread_meta must be an object.", field="config.thread_meta")

    async def _answers(self) -> dict[str, Any]:
        info, workflow, head = await self.threads.head(self.thread_id)
        self.workflow = workflow
        pending, given = head.pending_request_info_events, self.body.resume
        if not pending:
            raise NoPendingRequests(info.thread_id)
        if isinstance(given, dict) and given and all(key in pending for key in given):
            return await self.threads.answers_for(self.thread_id, given)
        if len(pending) > 1:
            names = ", ".join(sorted(pending))
            raise HttpProblem(
                422,
                "several_requests",
                f"Thread {self.thread_id!r} waits for several answers ({names}): give resume as an object by request "
                "id. Nothing was written.",
                field="resume",
            )
        return await self.threads.answers_for(self.thread_id, {next(iter(pending)): given})

    # ------------------------------------------------------------ what it gave

    async def ended(self) -> dict[str, Any]:
        """What `invoke` answers. Raises HttpProblem if the run failed or takes too long."""
        served = self.served
        if served is None:
            raise RuntimeError("This turn has not begun.")
        seconds = self.threads.service.config.limits.request_seconds
        if not await served.ended(seconds):
            raise HttpProblem(
                504,
                "run_takes_longer",
                f"Run {served.run_id} of thread {self.thread_id!r} goes on, longer than {seconds:g} s. Follow it at "
                f"/v1/threads/{self.thread_id}/events.",
                headers={"X-Run-Id": served.run_id},
                thread_id=self.thread_id,
            )
        if served.result is None:
            raise failure_of(self.threads, served)
        self._told = 0
        said = [message for event in served.result.outputs if event.type == "output" for message in self.said(event)]
        told: dict[str, Any] = {"messages": messages_to_client(said), "state": None, "context": None, "summary": None}
        if self.body.response_granularity != "low":
            state = await self.state()
            told["context"] = state["context"]
            told["state"] = state if self.body.response_granularity == "full" else None
        return {**told, "meta": self.meta()}

    def said(self, event: WorkflowEvent) -> list[Message]:
        """What an output says, with the ids that the thread's messages have later."""
        messages = said_by(event)
        if self.served is not None:
            messages = with_run_ids(messages, f"{self.served.run_id}-out", self._told)
        self._told += len(messages)
        return messages

    def meta(self) -> dict[str, Any]:
        served = self.served
        is_new = served is not None and served.is_new_thread
        requests = [] if served is None or served.result is None else served.result.get_request_info_events()
        return {
            "thread_id": self.thread_id,
            "is_new_thread": is_new,
            "thread_name": self._name,
            "run_id": None if served is None else served.run_id,
            "state": None if served is None else served.state,
            "pending_requests": [one.request_id for one in requests],
        }

    async def state(self) -> dict[str, Any]:
        info, workflow, head = await self.threads.head(self.thread_id)
        said = await conversation(self.threads.storage, workflow, head, last=SHOWN_TURNS)
        return state_to_client(info, head, said, self.threads.space)

    async def _name_thread(self, result: WorkflowRunResult) -> None:
        """A name that the client gives, or for a new thread one that is made; a failure of that changes nothing."""
        config = self.body.config
        name, metadata = config.get("thread_name"), config.get("thread_meta")
        self._name = result.about.get("name")
        if isinstance(name, str) or isinstance(metadata, dict):
            about = {"name": name, "metadata": metadata}
            await self.workflow.describe(
                self.stored_id,
                {key: value for key, value in about.items() if value is not None},
                on_busy="enqueue",
                checkpoint_storage=self.threads.storage,
            )
            self._name = name if isinstance(name, str) else self._name
        elif self._name is None and self.threads.service.name_threads is not None:
            asked = messages_from_client(self.body.messages)
            said = [*asked, *(message for event in result.outputs for message in said_by(event))]
            self._name = await self.threads.service.name_threads(self.workflow, self.stored_id, said)
