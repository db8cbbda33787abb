"""WorkflowBuilder: collects a graph by method calls, and makes a Workflow of it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias

from perdure.agents.base import adapt_agent, agent_name
from perdure.agents.executor import AgentExecutor
from perdure.checkpoints.migration.migrations import AnyMigration
from perdure.clock import Clock
from perdure.engine.run.request import Durability, check_storage
from perdure.errors import (
    DuplicateExecutorId,
    GraphConnectivityError,
    InvalidRun,
    ValidationTypeEnum,
    WorkflowValidationError,
    did_you_mean,
)
from perdure.graph.edges import (
    Case,
    Default,
    EdgeCondition,
    EdgeGroup,
    FanInEdgeGroup,
    FanOutEdgeGroup,
    SelectionFunction,
    SingleEdgeGroup,
    SwitchCaseEdgeGroup,
    SwitchCaseEdgeGroupCase,
    SwitchCaseEdgeGroupDefault,
)
from perdure.graph.executor import Executor
from perdure.graph.graph import Graph, Node, is_agent, node_of
from perdure.graph.policy import (
    DEFAULT,
    ISOLATE,
    SKIP,
    STOP,
    FailurePolicy,
    Reducer,
    RetryPolicy,
    Seconds,
    executor_policy,
)
from perdure.graph.validation import check_paths, validate_workflow_graph
from perdure.names import check_identifier
from perdure.workflows.workflow import Workflow

Participant: TypeAlias = Any
"""An Executor, an agent, a function that makes one of these, or its registered name."""

Designated: TypeAlias = "Sequence[Participant] | Literal['all', 'all_other'] | None"

DEFAULT_MAX_ITERATIONS = 100

_RANDOM_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[1-8][0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}", re.IGNORECASE)


class WorkflowBuilder:
    """`WorkflowBuilder(start_executor=a).add_edge(a, b).build()`.

    Where executors are expected, agents and functions that make one are accepted too.
    """

    def __init__(
        self,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        name: str | None = None,
        description: str | None = None,
        *,
        start_executor: Participant | None = None,
        checkpoint_storage: Any = None,
        output_from: Designated = None,
        intermediate_output_from: Designated = None,
        output_executors: Designated = None,
        state: Mapping[str, Reducer] | None = None,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] = (),
        clock: Clock | None = None,
        durability: Durability = "sync",
    ) -> None:
        if output_executors is not None:
            if output_from is not None:
                names = "(`output_from`, `output_executors`); use `output_from`"
                raise TypeError(f"Cannot pass multiple workflow output selection parameters {names}.")
            text = "`output_executors` is deprecated and will be removed in a future version; use `output_from`."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        for parameter, literal, known in (
            ("output_from", output_from, ("all",)),
            ("intermediate_output_from", intermediate_output_from, ("all", "all_other")),
        ):
            if isinstance(literal, str) and literal not in known:
                names = " or ".join(map(repr, known))
                raise ValueError(f"Unsupported {parameter} literal {literal!r}; use {names}, or a list of executors.")
        if name is not None:
            check_identifier("name", name)
        self._name = name
        self._description = description
        self._output_from = output_from if output_from is not None else output_executors
        self._intermediate_output_from = intermediate_output_from
        self._reducers = _checked_reducers(state)
        self._nodes: dict[str, Node] = {}
        self._added: dict[int, tuple[Any, str]] = {}
        """Each participant with its executor's id. It is kept alive, since `id()` is unique only among living ones."""
        self._names: dict[str, str] = {}
        self._policies: dict[str, FailurePolicy] = {}
        self._groups: list[EdgeGroup] = []
        self._start_id: str | None = None
        self._was_built = False
        self.set_max_iterations(max_iterations)
        if start_executor is not None:
            self.set_start_executor(start_executor)
        self._options: dict[str, Any] = {
            "allowed_types": tuple(allowed_types),
            "migrations": tuple(migrations),
            "clock": clock,
            "durability": durability,
        }
        self._storage: Any = None
        if checkpoint_storage is not None:
            self.with_checkpointing(checkpoint_storage)

    def with_checkpointing(self, checkpoint_storage: Any) -> Self:
        """Save a checkpoint after every superstep. Accepts any class with the six methods of CheckpointStorage."""
        check_storage(checkpoint_storage)
        self._storage = checkpoint_storage
        return self

    def set_start_executor(self, executor: Participant) -> Self:
        self._start_id = self._add(executor)
        return self

    def set_max_iterations(self, max_iterations: int) -> Self:
        if type(max_iterations) is not int or max_iterations < 1:
            raise InvalidRun(f"max_iterations must be a positive integer, got {max_iterations!r}.")
        self._max_iterations = max_iterations
        return self

    def register_executor(self, factory: Callable[[], Any], name: str) -> Self:
        """Give a factory a name that edges can use."""
        if name in self._names:
            raise DuplicateExecutorId(name)
        self._names[name] = self._add(factory)
        return self

    register_agent = register_executor

    def with_policy(
        self,
        executor: Participant,
        *,
        retry: RetryPolicy | int | None = None,
        timeout: Seconds | None = None,
        on_error: Any = STOP,
    ) -> Self:
        """Set the failure policy of an executor or agent. It replaces the policy of its constructor."""
        executor_id = self._add(executor)
        self._set_policy(executor_id, executor_policy(executor_id, retry, timeout, on_error))
        return self

    def _set_policy(self, executor_id: str, policy: FailurePolicy) -> None:
        if not isinstance(policy.on_error, str):  # a fallback executor joins the graph
            policy = replace(policy, on_error=self._add(policy.on_error))
        self._policies[executor_id] = policy

    def _add(self, thing: Participant) -> str:
        if isinstance(thing, str):
            return self._resolve_name(thing)
        if id(thing) in self._added:
            return self._added[id(thing)][1]
        agent = thing if isinstance(thing, Executor) or is_agent(thing) else adapt_agent(thing)
        if agent is not thing:  # an agent of another framework, which may have no `run`
            executor_id = self._add(agent)
            self._added[id(thing)] = thing, executor_id
            return executor_id
        agent_id = agent_name(thing, self._nodes) if is_agent(thing) else None
        node = node_of(thing, partial(AgentExecutor, id=agent_id))
        executor_id = node.executor.id
        if executor_id in self._nodes:
            raise DuplicateExecutorId(executor_id)
        self._nodes[executor_id] = node
        self._added[id(thing)] = thing, executor_id
        if node.executor.policy is not DEFAULT:
            self._set_policy(executor_id, node.executor.policy)
        return executor_id

    def _find(self, name: str) -> str | None:
        """The executor that is registered under this name, or has this id."""
        return self._names.get(name) or (name if name in self._nodes else None)

    def _resolve_name(self, name: str) -> str:
        executor_id = self._find(name)
        if executor_id is None:
            raise GraphConnectivityError(
                f"No executor is registered as {name!r}{did_you_mean(name, [*self._names, *self._nodes])}. Register it "
                "first: register_executor(factory, name)."
            )
        return executor_id

    def add_edge(self, source: Participant, target: Participant, condition: EdgeCondition | None = None) -> Self:
        _callable("condition", condition, or_none=True)
        self._groups.append(SingleEdgeGroup(self._add(source), self._add(target), condition))
        return self

    def add_fan_out_edges(self, source: Participant, targets: Sequence[Participant]) -> Self:
        """Every message of `source` goes to all targets."""
        source_id = self._add(source)
        self._groups.append(FanOutEdgeGroup(source_id, [self._add(target) for target in targets]))
        return self

    def add_fan_in_edges(self, sources: Sequence[Participant], target: Participant) -> Self:
        """`target` gets one list, in the order of `sources`, once each of them has sent."""
        target_id = self._add(target)
        self._groups.append(FanInEdgeGroup([self._add(source) for source in sources], target_id))
        return self

    def add_switch_case_edge_group(self, source: Participant, cases: Sequence[Case | Default]) -> Self:
        """The first case whose condition is true gets the message, otherwise the default."""
        for case in cases:
            if isinstance(case, Case):
                _callable("the condition of a Case", case.condition)
            elif not isinstance(case, Default):
                raise TypeError(f"add_switch_case_edge_group takes Case(...) and Default(...), got {case!r}.")
        source_id = self._add(source)
        self._groups.append(
            SwitchCaseEdgeGroup(
                source_id,
                [
                    SwitchCaseEdgeGroupCase(case.condition, self._add(case.target))
                    if isinstance(case, Case)
                    else SwitchCaseEdgeGroupDefault(self._add(case.target))
                    for case in cases
                ],
            )
        )
        return self

    def add_multi_selection_edge_group(
        self, source: Participant, targets: Sequence[Participant], selection_func: SelectionFunction
    ) -> Self:
        """`selection_func(message, target_ids)` names the targets of each message."""
        _callable("selection_func", selection_func)
        source_id = self._add(source)
        self._groups.append(FanOutEdgeGroup(source_id, [self._add(target) for target in targets], selection_func))
        return self

    def add_chain(self, executors: Sequence[Participant]) -> Self:
        """One edge from each executor to the next."""
        if isinstance(executors, str) or len(executors) < 2:
            raise ValueError(f"At least two executors are required to form a chain, got {executors!r}.")
        for source, target in pairwise(executors):
            self.add_edge(source, target)
        return self

    def build(self) -> Workflow:
        """Check the graph and make the workflow. Raises WorkflowValidationError."""
        return Workflow(self.graph(), self._storage, **self._options)

    def graph(self) -> Graph:
        """The frozen graph. Raises WorkflowValidationError for an invalid graph."""
        if self._start_id is None:
            raise GraphConnectivityError(
                "The workflow has no start executor. Pass WorkflowBuilder(start_executor=...) or call "
                "set_start_executor(...)."
            )
        nodes = dict(self._nodes)
        if self._was_built:  # every workflow has instances of its own
            nodes = {executor_id: replace(node, executor=node.make(shares=True)) for executor_id, node in nodes.items()}
        self._was_built = True
        executors = {executor_id: node.executor for executor_id, node in nodes.items()}
        _warn_of_random_ids(executors)
        fallbacks = self._fallbacks()
        output_kinds = validate_workflow_graph(
            self._groups,
            executors,
            executors[self._start_id],
            self._ids(self._output_from),
            self._ids(self._intermediate_output_from),
            fallbacks=fallbacks,
        )
        if not output_kinds:
            raise WorkflowValidationError(
                "Explicit workflow output designation must include at least one output or intermediate executor: "
                "output_from and intermediate_output_from name none, so the workflow would have no output.",
                ValidationTypeEnum.OUTPUT_VALIDATION,
            )
        check_paths(executors)
        return Graph(
            # The default is stable, too: threads are found by it in every process.
            name=self._name or f"{type(executors[self._start_id]).__name__}-{self._start_id}",
            description=self._description,
            start_executor_id=self._start_id,
            nodes=nodes,
            edge_groups=tuple(self._groups),
            max_iterations=self._max_iterations,
            output_kinds=output_kinds,
            has_designations=self._output_from is not None or self._intermediate_output_from is not None,
            reducers=dict(self._reducers),
            policies={key: policy for key, policy in self._policies.items() if policy != DEFAULT},
            fallbacks=fallbacks,
        )

    def _fallbacks(self) -> dict[str, str]:
        fallbacks, modes = {}, (STOP, SKIP, ISOLATE)
        for executor_id, policy in self._policies.items():
            name = policy.on_error
            if name in modes:
                continue
            fallback_id = self._find(name)
            if fallback_id is None:
                names = [*modes, *self._names, *self._nodes]
                raise GraphConnectivityError(
                    f"on_error={name!r} of executor {executor_id!r} is neither 'stop', 'skip', 'isolate' nor an "
                    f"executor of the graph{did_you_mean(name, names)}. Pass the executor itself, or add it to the "
                    "graph first."
                )
            fallbacks[executor_id] = fallback_id
        return fallbacks

    def _ids(self, designated: Designated) -> list[str] | str | None:
        if designated is None or isinstance(designated, str):
            return designated
        for thing in designated:
            if not isinstance(thing, str | Executor) and not is_agent(thing) and not callable(thing):
                raise TypeError(
                    "WorkflowBuilder expected designation entries to be Executor or SupportsAgentRun instances, or ids "
                    f"of executors, got {thing!r}."
                )
        return [self._known_id(thing) for thing in designated]

    def _known_id(self, thing: Participant) -> str:
        """The id of a participant in the graph. Validation rejects an unknown one."""
        if isinstance(thing, str):
            return self._names.get(thing, thing)
        return self._added[id(thing)][1] if id(thing) in self._added else str(getattr(thing, "id", thing))


def _callable(what: str, thing: object, *, or_none: bool = False) -> None:
    if not callable(thing) and not (or_none and thing is None):
        raise TypeError(f"{what} must be a function, got {thing!r}.")


def _checked_reducers(state: Mapping[str, Reducer] | None) -> dict[str, Reducer]:
    if state is not None and not isinstance(state, Mapping):
        raise TypeError(f"state= maps keys to reducers, such as {{'notes': append}}, got {state!r}.")
    for key, reducer in (state or {}).items():
        _callable(f"The reducer of state key {key!r}", reducer)
    return dict(state or {})


def _warn_of_random_ids(executor_ids: Iterable[str]) -> None:
    for executor_id in executor_ids:
        if _RANDOM_ID.search(executor_id):
            warnings.warn(
                f"The executor id {executor_id!r} looks random. Checkpoints find an executor's state by its id, so it "
                "must be the same in every process: give a fixed one, such as 'reviewer'.",
                UserWarning,
                stacklevel=4,  # the line that calls build()
            )
