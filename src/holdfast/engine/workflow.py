"""Workflow: what `build` gives. One object serves any number of threads at the same time."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Literal, overload

import msgspec

from holdfast.checkpoints.storage import read_lineage
from holdfast.clock import Clock, SystemClock
from holdfast.engine.compiled import Compiled
from holdfast.engine.entry import RunRequest
from holdfast.engine.handle import RunHandle
from holdfast.engine.live import LiveThreads
from holdfast.engine.result import WorkflowRunResult
from holdfast.engine.run import Run
from holdfast.engine.stream import ResponseStream
from holdfast.errors import InvalidRun, NoStorage, ThreadNotFound, did_you_mean
from holdfast.events import WorkflowEvent, WorkflowRunState
from holdfast.graph.edges import EdgeGroup
from holdfast.graph.executor import Executor
from holdfast.graph.graph import Graph
from holdfast.names import check_identifier, checkpoint_id_of, new_run_id
from holdfast.records import CheckpointInfo, WorkflowMessage

DURABILITIES = ("sync", "async", "exit")
ON_BUSY = ("reject", "enqueue", "interrupt")

OnBusy = Literal["reject", "enqueue", "interrupt"]
Durability = Literal["sync", "async", "exit"]


class Workflow:
    """A graph that can be run. Made by `WorkflowBuilder(...).build()`."""

    def __init__(
        self,
        graph: Graph,
        checkpoint_storage: Any = None,
        *,
        allowed_types: Iterable[type | str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._graph = graph
        self._storage = checkpoint_storage
        self._compiled = Compiled(graph, allowed_types)
        self._live = LiveThreads(graph)
        self._clock = clock or SystemClock()
        self.id = new_run_id()
        self.name = graph.name
        self.description = graph.description
        self.start_executor_id = graph.start_executor_id
        self.max_iterations = graph.max_iterations
        self.graph_signature = self._compiled.signature
        self.graph_signature_hash = self._compiled.signature_hash

    # ------------------------------------------------------------ running

    @overload
    def run(
        self,
        message: Any = None,
        *,
        stream: Literal[False] = False,
        responses: Mapping[str, Any] | None = None,
        checkpoint_id: str | CheckpointInfo | None = None,
        checkpoint_storage: Any = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        durability: Durability = "sync",
        max_lag: int = 8,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        fork: bool = False,
        force: bool = False,
        include_status_events: bool = False,
        function_invocation_kwargs: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, WorkflowRunResult]: ...
    @overload
    def run(
        self,
        message: Any = None,
        *,
        stream: Literal[True],
        responses: Mapping[str, Any] | None = None,
        checkpoint_id: str | CheckpointInfo | None = None,
        checkpoint_storage: Any = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        durability: Durability = "sync",
        max_lag: int = 8,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
        fork: bool = False,
        force: bool = False,
        include_status_events: bool = False,
        function_invocation_kwargs: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
    ) -> ResponseStream[WorkflowEvent, WorkflowRunResult]: ...
    def run(
        self, message: Any = None, *, stream: bool = False, include_status_events: bool = False, **options: Any
    ) -> Any:
        """Move a thread forward: a new message, answers to its requests, or a resume.

        Gives something to await for the result or, with `stream=True`, to iterate for events as they happen. Calls that
        have no meaning raise InvalidRun here, before anything happens.
        """
        unknown = next((name for name in options if name not in _RUN_OPTIONS), None)
        if unknown is not None:
            raise TypeError(
                f"run() got an unexpected keyword argument {unknown!r}{did_you_mean(unknown, _RUN_OPTIONS)}"
            )
        request = self._request(message, **options)
        run = Run(self._compiled, self._live, self._clock, request)
        if not stream:
            return run.execute(include_status_events=include_status_events)
        return ResponseStream[WorkflowEvent, WorkflowRunResult](
            lambda put: run.execute(put, include_status_events=include_status_events), run.interrupt
        )

    def run_streaming(self, message: Any = None, **options: Any) -> ResponseStream[WorkflowEvent, WorkflowRunResult]:
        """`run(message, stream=True)`."""
        return self.run(message, stream=True, **options)

    run_stream = run_streaming

    def run_stream_from_checkpoint(
        self, checkpoint_id: str | CheckpointInfo, checkpoint_storage: Any = None, **options: Any
    ) -> ResponseStream[WorkflowEvent, WorkflowRunResult]:
        """`run(checkpoint_id=..., stream=True)`."""
        return self.run(stream=True, checkpoint_id=checkpoint_id, checkpoint_storage=checkpoint_storage, **options)

    def run_from_checkpoint(
        self, checkpoint_id: str | CheckpointInfo, checkpoint_storage: Any = None, **options: Any
    ) -> Coroutine[Any, Any, WorkflowRunResult]:
        """`run(checkpoint_id=...)`."""
        result: Coroutine[Any, Any, WorkflowRunResult] = self.run(
            checkpoint_id=checkpoint_id, checkpoint_storage=checkpoint_storage, **options
        )
        return result

    def _request(
        self,
        message: Any,
        *,
        responses: Mapping[str, Any] | None = None,
        checkpoint_id: str | CheckpointInfo | None = None,
        checkpoint_storage: Any = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        durability: str = "sync",
        max_lag: int = 8,
        on_busy: str = "reject",
        takeover: bool = False,
        fork: bool = False,
        force: bool = False,
        function_invocation_kwargs: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
    ) -> RunRequest:
        _refuse_meaningless(message, responses, checkpoint_id, fork)
        _one_of("durability", durability, DURABILITIES)
        _one_of("on_busy", on_busy, ON_BUSY)
        _positive("max_lag", max_lag)
        check_identifier("thread_id", thread_id)
        check_identifier("run_id", run_id)
        if checkpoint_storage is not None:
            check_storage(checkpoint_storage)
        storage = checkpoint_storage if checkpoint_storage is not None else self._storage
        if checkpoint_id is not None and storage is None:
            raise NoStorage("Running from a checkpoint")
        return RunRequest(
            message=message,
            responses=None if responses is None else dict(responses),
            checkpoint_id=None if checkpoint_id is None else checkpoint_id_of(checkpoint_id),
            storage=storage,
            thread_id=thread_id,
            run_id=run_id,
            durability=durability,
            on_busy=on_busy,
            takeover=takeover,
            fork=fork,
            force=force,
            function_invocation_kwargs=function_invocation_kwargs,
            client_kwargs=client_kwargs,
        )

    def open(
        self,
        *,
        thread_id: str | None = None,
        checkpoint_storage: Any = None,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
    ) -> RunHandle:
        """A live handle on a thread, for `async with`: send, answer, restore and watch while it runs."""
        request = self._request(
            None, thread_id=thread_id, checkpoint_storage=checkpoint_storage, on_busy=on_busy, takeover=takeover
        )
        return RunHandle(self._compiled, self._live, self._clock, request)

    # ------------------------------------------------------------ looking

    @property
    def status(self) -> WorkflowRunState:
        """What the object's own thread is doing."""
        thread = self._live.find(self._live.own_id) if self._live.own_id else None
        return WorkflowRunState.IDLE if thread is None else thread.status

    async def messages(self, thread_id: str | None = None, *, checkpoint_storage: Any = None) -> list[WorkflowMessage]:
        """Every message that was exchanged in a thread, in the order of delivery, as far as its history is kept."""
        storage = checkpoint_storage if checkpoint_storage is not None else self._storage
        if storage is None:
            raise NoStorage("Reading a thread's messages")
        chosen = thread_id or self._live.own_id
        history = await read_lineage(storage, chosen, self.name) if chosen is not None else []
        if chosen is None:
            raise InvalidRun("This workflow object has not run yet: name a thread, messages(thread_id).")
        if not history:
            raise ThreadNotFound(chosen)
        found = {message.delivery_id: message for checkpoint in history for message in checkpoint.deliveries}
        return [found[delivery_id] for delivery_id in sorted(found)]

    @property
    def edge_groups(self) -> list[EdgeGroup]:
        return list(self._graph.edge_groups)

    @property
    def executors(self) -> dict[str, Executor]:
        return dict(self._graph.executors)

    def get_start_executor(self) -> Executor:
        return self._graph.executors[self.start_executor_id]

    def get_executors_list(self) -> list[Executor]:
        return list(self._graph.executors.values())

    def get_output_executors(self) -> list[Executor]:
        return [one for one in self.get_executors_list() if self.is_terminal_executor(one.id)]

    def get_intermediate_executors(self) -> list[Executor]:
        return [one for one in self.get_executors_list() if self.is_intermediate_executor(one.id)]

    def is_terminal_executor(self, executor_id: str) -> bool:
        """Whether its outputs are results of the workflow."""
        return self._graph.designation.event_type(executor_id) == "output"

    def is_intermediate_executor(self, executor_id: str) -> bool:
        return self._graph.designation.event_type(executor_id) == "intermediate"

    @property
    def input_types(self) -> list[Any]:
        return self.get_start_executor().input_types

    @property
    def output_types(self) -> list[Any]:
        every = (kind for one in self.get_output_executors() for kind in one.workflow_output_types)
        return list(dict.fromkeys(every))

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "start_executor_id": self.start_executor_id,
            "max_iterations": self.max_iterations,
            "executors": {key: one.to_dict() for key, one in self._graph.executors.items()},
            "edge_groups": [group.to_dict() for group in self._graph.edge_groups],
        }

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_dict()).decode()

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self._graph.nodes)} executors)"


_RUN_OPTIONS = frozenset(inspect.signature(Workflow._request).parameters) - {"self", "message"}


def _refuse_meaningless(message: Any, responses: Any, checkpoint_id: Any, fork: bool) -> None:
    if message is not None and responses is not None:
        raise InvalidRun("run() takes a message or responses, not both: answer first, then send the message.")
    if message is not None and checkpoint_id is not None:
        raise InvalidRun("run() takes a message or a checkpoint_id, not both: restore first, then send the message.")
    if fork and checkpoint_id is None:
        raise InvalidRun("run(fork=True) needs the checkpoint_id to fork from.")
    if responses is not None and not isinstance(responses, Mapping):
        raise InvalidRun(f"responses must map request ids to answers, got {type(responses).__name__}.")
    if responses is not None and not responses:
        raise InvalidRun("responses is empty: give at least one answer, or leave it out to resume.")


_STORAGE_METHODS = ("save", "load", "list_checkpoints", "delete", "get_latest", "list_checkpoint_ids")


def check_storage(storage: Any) -> None:
    """Raises InvalidRun for something that is no checkpoint storage."""
    missing = [method for method in _STORAGE_METHODS if not callable(getattr(storage, method, None))]
    if missing:
        raise InvalidRun(
            f"{storage!r} is not a checkpoint storage: it has no {', '.join(missing)}. Use one of holdfast's, such as "
            "InMemoryCheckpointStorage(), or a class with these methods."
        )


def _one_of(parameter: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRun(
            f"{parameter} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
            f"{did_you_mean(str(value), allowed)}."
        )


def _positive(parameter: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise InvalidRun(f"{parameter} must be a positive integer, got {value!r}.")
