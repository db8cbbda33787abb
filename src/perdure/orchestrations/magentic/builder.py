"""MagenticBuilder: a manager plans, says who does what, judges how it goes, and plans anew where it does not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

from perdure.agents.adapters import adapted
from perdure.engine.run.options import Durability
from perdure.graph.builder import DEFAULT_MAX_ITERATIONS
from perdure.graph.sub_workflow import is_agent
from perdure.orchestrations.magentic.ledger import MagenticTaskLedger
from perdure.orchestrations.magentic.manager import MagenticManagerBase, StandardMagenticManager
from perdure.orchestrations.magentic.orchestrator import ORCHESTRATOR_ID, MagenticOrchestrator
from perdure.orchestrations.magentic.participant import MagenticAgentExecutor, member_of
from perdure.orchestrations.participants import (
    IntermediateOutputFrom,
    OutputFrom,
    Settings,
    designate,
    read_participants,
)
from perdure.workflows.workflow import Workflow


class MagenticBuilder:
    """`MagenticBuilder(participants=[researcher, writer], manager_agent=manager).build()`.

    The manager is an agent, a MagenticManagerBase, or a function that makes one of these: exactly one of the four. The
    prompts, `task_ledger` and the limits are for an agent; a manager brings its own. The output is the manager's final
    answer, an AgentResponse. With `enable_plan_review` each plan waits for somebody's approval.
    """

    def __init__(
        self,
        *,
        participants: Sequence[Any],
        manager: MagenticManagerBase | None = None,
        manager_factory: Callable[[], MagenticManagerBase] | None = None,
        manager_agent: Any = None,
        manager_agent_factory: Callable[[], Any] | None = None,
        task_ledger: MagenticTaskLedger | None = None,
        task_ledger_facts_prompt: str | None = None,
        task_ledger_plan_prompt: str | None = None,
        task_ledger_full_prompt: str | None = None,
        task_ledger_facts_update_prompt: str | None = None,
        task_ledger_plan_update_prompt: str | None = None,
        progress_ledger_prompt: str | None = None,
        final_answer_prompt: str | None = None,
        max_stall_count: int = 3,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
        enable_plan_review: bool = False,
        checkpoint_storage: Any = None,
        name: str | None = None,
        description: str | None = None,
        durability: Durability = "sync",
        allowed_types: Iterable[type | str] = (),
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateOutputFrom = None,
    ) -> None:
        self._settings = Settings("magentic", name, description, checkpoint_storage, durability, tuple(allowed_types))
        self._team = read_participants(participants)
        self._output_from, self._intermediate_output_from = output_from, intermediate_output_from
        self._enable_plan_review = enable_plan_review
        options: dict[str, Any] = {
            "task_ledger": task_ledger,
            "task_ledger_facts_prompt": task_ledger_facts_prompt,
            "task_ledger_plan_prompt": task_ledger_plan_prompt,
            "task_ledger_full_prompt": task_ledger_full_prompt,
            "task_ledger_facts_update_prompt": task_ledger_facts_update_prompt,
            "task_ledger_plan_update_prompt": task_ledger_plan_update_prompt,
            "progress_ledger_prompt": progress_ledger_prompt,
            "final_answer_prompt": final_answer_prompt,
            "max_stall_count": None if max_stall_count == 3 else max_stall_count,
            "max_reset_count": max_reset_count,
            "max_round_count": max_round_count,
        }
        given = {
            "manager": manager,
            "manager_factory": manager_factory,
            "manager_agent": manager_agent,
            "manager_agent_factory": manager_agent_factory,
        }
        self._make_manager = _chosen(given, {key: option for key, option in options.items() if option is not None})

    def with_plan_review(self, enable: bool = True) -> Self:
        """Have somebody approve each plan before anybody works by it."""
        self._enable_plan_review = enable
        return self

    def with_checkpointing(self, checkpoint_storage: Any) -> Self:
        self._settings.keep_in(checkpoint_storage)
        return self

    def build(self) -> Workflow:
        """Raises WorkflowValidationError, or ValueError for what does not fit together."""
        executors = {one.name: one.executor(MagenticAgentExecutor) for one in self._team}
        members = [member_of(executors[one.name], one.description) for one in self._team]
        orchestrator = MagenticOrchestrator(self._make_manager, members, enable_plan_review=self._enable_plan_review)
        designation = designate(self._team, self._output_from, self._intermediate_output_from, always=[ORCHESTRATOR_ID])
        most = orchestrator.manager.max_round_count
        iterations = DEFAULT_MAX_ITERATIONS if most is None else max(DEFAULT_MAX_ITERATIONS, 2 * most + 2)
        builder = self._settings.builder(self._team, orchestrator, designation, max_iterations=iterations)
        for executor in executors.values():
            builder.add_edge(orchestrator, executor).add_edge(executor, orchestrator)
        return builder.build()


def _chosen(given: dict[str, Any], options: dict[str, Any]) -> Callable[[], MagenticManagerBase]:
    """Makes a manager for each thread. Raises ValueError or TypeError for what could never be one."""
    [*named] = [name for name, one in given.items() if one is not None]
    if len(named) != 1:
        told = " and ".join(named) or "none"
        raise ValueError(f"Give exactly one of {', '.join(given)}; {told} was given.")
    name, chosen = named[0], given[named[0]]
    if name in ("manager", "manager_factory") and options:
        raise ValueError(f"{', '.join(options)} is for an agent: a {name} brings its own. Give it to that.")
    if name == "manager":
        if not isinstance(chosen, MagenticManagerBase):
            raise TypeError(f"manager= expects a MagenticManagerBase, got {chosen!r}. For an agent: manager_agent=.")
        return partial(copy.copy, chosen)
    if name.endswith("factory") and not callable(chosen):
        raise TypeError(f"{name}= expects a function, got {chosen!r}.")
    if name == "manager_factory":
        return chosen  # type: ignore[no-any-return]  # what it makes is checked where it is made
    make_agent: Callable[[], Any] = chosen if name == "manager_agent_factory" else lambda: chosen

    def make() -> MagenticManagerBase:
        agent = adapted(make_agent())
        if not is_agent(agent):
            raise TypeError(f"{name}= expects an agent (something with run() and a name), got {agent!r}.")
        return StandardMagenticManager(agent, **options)

    if name == "manager_agent":
        make()  # what is wrong with the prompts or limits is said here
    return make
