"""AgentWorkflow: the fluent builder of nodes, edges and settings."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Self

import msgspec

from perdure import storages
from perdure.agent_workflow import condition
from perdure.agent_workflow.builder.build import build_instance
from perdure.agent_workflow.builder.node import AgentNodeOptions, node_of_agent, node_of_workflow
from perdure.agent_workflow.condition import Condition
from perdure.agent_workflow.definition import (
    ConversationConfig,
    ConversationMode,
    Draft,
    EdgeConfig,
    EdgeDraft,
    NodeDraft,
    WorkflowConfig,
)
from perdure.agent_workflow.documents.convert import read_draft
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agent_workflow.sessions import InMemorySessionStore, JsonSessionStore, SessionStore, SqliteSessionStore
from perdure.agent_workflow.store import DefinitionStore, find_stored_number, retention_of
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import Clock
from perdure.engine.run.request import Durability, check_durability
from perdure.graph.policy import in_seconds
from perdure.names import check_identifier

Configure = Callable[[AgentNodeOptions], Any]


@dataclass(eq=False, repr=False)
class AgentWorkflow:
    """`AgentWorkflow.create().add_agent("a", writer).add_agent("b", editor).from_("a").to("b").build()`.

    Nodes without incoming edges begin; the execution ends at nodes without outgoing edges.
    """

    _draft: Draft

    @classmethod
    def create(cls) -> AgentWorkflow:
        return AgentWorkflow(Draft(WorkflowConfig(name="")))

    def with_name(self, name: str) -> AgentWorkflow:
        """The name of executions and of the stored definition. The default is built from the nodes' ids."""
        check_identifier("name", name)
        self._draft.change(name=name)
        return self

    def with_version(self, version: str) -> AgentWorkflow:
        self._draft.change(version=version)
        return self

    def with_description(self, description: str) -> AgentWorkflow:
        self._draft.change(description=description)
        return self

    def with_max_iterations(self, count: int) -> AgentWorkflow:
        """The maximum of passes through its loops. A workflow with a loop needs it."""
        self._draft.change_settings(max_iterations=count)
        return self

    def with_convergence(self, enabled: bool = True) -> AgentWorkflow:
        """Whether a loop ends when a pass changes nothing. The default is True."""
        self._draft.change_settings(convergence=enabled)
        return self

    def with_timeout(self, timeout: timedelta | float) -> AgentWorkflow:
        """The timeout of a whole execution, from its start, including restarts and pauses."""
        self._draft.change_settings(timeout=in_seconds("with_timeout", timeout))
        return self

    def with_model(self, model: str) -> AgentWorkflow:
        """The model of agents whose AgentConfig has none."""
        self._draft.change_settings(model=model)
        return self

    def with_durability(self, durability: Durability) -> AgentWorkflow:
        """When executions are saved, like `durability=` of a run."""
        check_durability(durability)
        self._draft.durability = durability
        return self

    def with_clock(self, clock: Clock) -> AgentWorkflow:
        """For tests."""
        self._draft.clock = clock
        return self

    def with_checkpointing(self, enabled: bool = True) -> AgentWorkflow:
        """Save executions in the workflow store, so that they survive this process."""
        self._draft.change_settings(checkpointing=enabled)
        return self

    def with_workflow_store(self, storage: StoreCheckpointStorage) -> AgentWorkflow:
        """Any storage of perdure."""
        self._draft.store = storage
        return self

    def with_in_memory_workflow_store(self, retention_mode: Any = None, *, retention: Any = None) -> AgentWorkflow:
        """For tests and short-lived work. The default of `retention_mode` is LatestOnly."""
        chosen = retention_of(retention_mode, retention)
        return self.with_workflow_store(storages.InMemoryCheckpointStorage(retention=chosen))

    def with_json_workflow_store(
        self, root_directory: str | os.PathLike[str], retention_mode: Any = None, *, retention: Any = None
    ) -> AgentWorkflow:
        """A folder of JSON files."""
        chosen = retention_of(retention_mode, retention)
        return self.with_workflow_store(storages.FileCheckpointStorage(root_directory, retention=chosen))

    def with_sqlite_workflow_store(
        self, path: str | os.PathLike[str], retention_mode: Any = None, *, retention: Any = None
    ) -> AgentWorkflow:
        chosen = retention_of(retention_mode, retention)
        return self.with_workflow_store(storages.SqliteCheckpointStorage(path, retention=chosen))

    def with_postgres_workflow_store(
        self, dsn: str, retention_mode: Any = None, *, retention: Any = None, **options: Any
    ) -> AgentWorkflow:
        """`options` are those of PostgresCheckpointStorage."""
        chosen = retention_of(retention_mode, retention)
        return self.with_workflow_store(storages.PostgresCheckpointStorage(dsn, retention=chosen, **options))

    def with_session_store(self, store: Any) -> AgentWorkflow:
        """A store for conversations: `StorageSessionStore(storage)`, or your own."""
        if not isinstance(store, SessionStore):
            expected = "a SessionStore, such as JsonSessionStore(folder)"
            raise TypeError(f"with_session_store expects {expected}, got {store!r}.")
        self._draft.session_store = store
        return self

    def with_in_memory_session_store(self) -> AgentWorkflow:
        return self.with_session_store(InMemorySessionStore())

    def with_json_session_store(
        self, root_directory: str | os.PathLike[str], *, encryption: storages.AesGcm | None = None
    ) -> AgentWorkflow:
        """A folder of JSON files; `encryption=AesGcm(key)` encrypts messages."""
        return self.with_session_store(JsonSessionStore(root_directory, encryption=encryption))

    def with_sqlite_session_store(
        self, path: str | os.PathLike[str], *, encryption: storages.AesGcm | None = None
    ) -> AgentWorkflow:
        return self.with_session_store(SqliteSessionStore(path, encryption=encryption))

    def with_conversation(
        self, mode: ConversationMode | ConversationConfig, *, session_id: str | None = None
    ) -> AgentWorkflow:
        """The messages of earlier turns that agents get: none (`none`), all (`shared`), those of the same agent
        (`per_agent`), or all until its first turn and then its own (`fork_per_agent`). Needs a session store."""
        config = mode if isinstance(mode, ConversationConfig) else ConversationConfig(mode=mode, session_id=session_id)
        self._draft.change_settings(conversation=config)
        return self

    def add_agent(self, id: str, agent: Any, configure: Configure | None = None) -> AgentWorkflow:
        """`agent` is an agent, an AgentConfig, or a function that gets an empty AgentConfig and returns a config or an
        agent."""
        _configure(self._draft.add(id, node_of_agent(agent)), configure)
        return self

    def add_router_agent(self, id: str, agent: Any, configure: Configure | None = None) -> RouterAgentBuilder:
        """An agent that decides which node is next: `.with_handoff("billing", "Questions about money")`."""
        node = self._draft.add(id, node_of_agent(agent))
        node.config = msgspec.structs.replace(node.config, output_mode="handoff")
        _configure(node, configure)
        return RouterAgentBuilder(self._draft, AgentNodeOptions(node))

    def add_workflow(
        self,
        id: str,
        workflow: AgentWorkflowInstance | WorkflowConfig | dict[str, Any],
        configure: Configure | None = None,
    ) -> AgentWorkflow:
        """A whole workflow as a node: a built one, or its definition. It runs in the same execution."""
        _configure(self._draft.add(id, node_of_workflow(id, workflow)), configure)
        return self

    add_multi_agent = add_workflow

    def from_(self, *ids: str) -> EdgeBuilder:
        """`.from_("a").to("b")`. START stands for the input of the execution."""
        if not ids:
            raise ValueError("from_() needs the id of a node.")
        return EdgeBuilder(self._draft, ids)

    def build(self) -> AgentWorkflowInstance:
        """Raises InvalidDefinition with all problems."""
        return build_instance(self._draft)

    @classmethod
    def from_config(cls, source: str | os.PathLike[str] | dict[str, Any] | WorkflowConfig) -> AgentWorkflow:
        """From a document: a file of JSON or YAML, or its content. The builder can add a store before it builds."""
        return AgentWorkflow(read_draft(source))

    from_json = from_config
    from_file = from_config

    @classmethod
    async def load(
        cls,
        name: str,
        storage: StoreCheckpointStorage,
        version: str | int | None = None,
        *,
        execution_id: str | None = None,
    ) -> AgentWorkflow:
        """A saved definition, with this store for its executions: the newest version, the version of this number, the
        newest with this version text, or the version that an execution was started with. Raises DefinitionNotFound,
        DamagedDefinition, InvalidDefinition."""
        if execution_id is not None and version is None:
            version = await find_stored_number(storage, execution_id, name)
        stored = await DefinitionStore(storage).load(name, version)
        builder = cls.from_config(stored.config).with_checkpointing().with_workflow_store(storage)
        builder._draft.number = stored.number
        return builder


def _configure(node: NodeDraft, configure: Configure | None) -> None:
    if configure is not None:
        configure(AgentNodeOptions(node))


@dataclass(eq=False, repr=False)
class EdgeBuilder:
    """Adds edges from some nodes."""

    _draft: Draft
    _sources: Sequence[str]

    def to(self, *ids: str) -> EdgeTargetBuilder:
        """An edge from each source to each of these nodes. END stands for the end of the execution."""
        if not ids:
            raise ValueError("to() needs the id of a node.")
        edges = [EdgeDraft(EdgeConfig(source=source, target=target)) for source in self._sources for target in ids]
        self._draft.edges += edges
        return EdgeTargetBuilder(self._draft, edges)

    def route_by_type(self) -> TypeRouteBuilder:
        """For a node with `union_output`: `.when(Invoice, "billing").when(Complaint, "care").default("human")`."""
        return TypeRouteBuilder(self._draft, self._sources)


P = ParamSpec("P")


def _shortcut(make: Callable[P, Condition]) -> Callable[Concatenate[EdgeTargetBuilder, P], EdgeTargetBuilder]:
    """A method that adds the condition which `make` returns: `when_equals(...)` is `when(condition.equals(...))`."""

    def when_it_holds(self: EdgeTargetBuilder, /, *args: P.args, **kwargs: P.kwargs) -> EdgeTargetBuilder:
        return self.when(make(*args, **kwargs))

    own = inspect.signature(make)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    when_it_holds.__doc__ = make.__doc__
    when_it_holds.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    return when_it_holds


@dataclass(eq=False, repr=False)
class EdgeTargetBuilder(AgentWorkflow):
    """Sets conditions of the edges that were added last. It is also the builder of the workflow."""

    _edges: Sequence[EdgeDraft]

    def when(self, test: Condition | Callable[[Mapping[str, Any]], bool]) -> Self:
        """A condition, or a function of the source's outputs. Several: all must hold."""
        for edge in self._edges:
            if isinstance(test, Condition):
                joined = test if edge.config.when is None else edge.config.when & test
                edge.config = msgspec.structs.replace(edge.config, when=joined)
            elif edge.predicate is not None:
                raise ValueError("An edge has one function as its condition: put both into one.")
            elif callable(test):
                edge.predicate = test
            else:
                raise TypeError(f"when expects a condition or a function of the outputs, got {test!r}.")
        return self

    when_equals = _shortcut(condition.equals)
    when_not_equals = _shortcut(condition.not_equals)
    when_exists = _shortcut(condition.exists)
    when_not_exists = _shortcut(condition.not_exists)
    when_greater_than = _shortcut(condition.greater_than)
    when_less_than = _shortcut(condition.less_than)
    when_contains = _shortcut(condition.contains)
    when_starts_with = _shortcut(condition.starts_with)
    when_ends_with = _shortcut(condition.ends_with)
    when_matches_regex = _shortcut(condition.matches_regex)
    when_empty = _shortcut(condition.is_empty)
    when_not_empty = _shortcut(condition.is_not_empty)
    when_contains_any = _shortcut(condition.contains_any)
    when_contains_all = _shortcut(condition.contains_all)

    def as_default(self) -> Self:
        """Taken if no other edge of its source is taken."""
        return self._change(is_default=True)

    def with_delay(self, delay: timedelta | float) -> Self:
        """The target waits this long, across restarts, before it runs."""
        return self._change(delay=in_seconds("with_delay", delay))

    def _change(self, **changes: Any) -> Self:
        for edge in self._edges:
            edge.config = msgspec.structs.replace(edge.config, **changes)
        return self


@dataclass(eq=False, repr=False)
class TypeRouteBuilder(AgentWorkflow):
    """Selects the next node by the type of a union output."""

    _sources: Sequence[str]

    def when(self, kind: type, target: str) -> Self:
        return self._add(target, matched_type=kind.__name__)

    def default(self, target: str) -> Self:
        return self._add(target, is_default=True)

    def _add(self, target: str, **what: Any) -> Self:
        self._draft.edges += [EdgeDraft(EdgeConfig(source=source, target=target, **what)) for source in self._sources]
        return self


@dataclass(eq=False, repr=False)
class RouterAgentBuilder(AgentWorkflow):
    """Configures the router that was added last. It is also the builder of the workflow."""

    _options: AgentNodeOptions

    def with_handoff(self, target: str, description: str | None = None) -> Self:
        """The agent may hand off to this node. Its model reads the description."""
        self._options.with_handoff(target, description)
        return self

    def with_default_handoff(self, target: str) -> Self:
        """The target if the agent does not choose one."""
        self._options.with_default_handoff(target)
        return self

    def configure(self, configure: Configure) -> Self:
        configure(self._options)
        return self
