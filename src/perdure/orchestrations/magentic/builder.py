"""MagenticBuilder: a manager plans, instructs participants, judges their progress, and replans after stalls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

from perdure.agents.adapters import adapt_agent
from perdure.engine.run.request import Durability
from perdure.graph.sub_workflow import is_agent
from perdure.orchestrations.magentic.manager import MagenticManagerBase, StandardMagenticManager
from perdure.orchestrations.magentic.orchestrator import ORCHESTRATOR_ID, MagenticOrchestrator
from perdure.orchestrations.magentic.types import MagenticAgentExecutor, MagenticTaskLedger, member_of
from perdure.orchestrations.participants import (
    IntermediateOutputFrom,
    OutputFrom,
    TeamBuilder,
    designate,
    read_participants,
)
from perdure.workflows.builder import DEFAULT_MAX_ITERATIONS
from perdure.workflows.workflow import Workflow


class MagenticBuilder(TeamBuilder):
    """`MagenticBuilder(participants=[researcher, writer], manager_agent=manager).build()`.

    The manager is an agent, a MagenticManagerBase, or a function that makes one of these: exactly one of the four. The
    prompts, `task_ledger` and the limits apply to an agent; a manager has its own. The output is the manager's final
    answer, an AgentResponse. With `enable_plan_review` each plan waits for approval.
    """

    KIND = "magentic"

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
        super().__init__(name, description, checkpoint_storage, durability, allowed_types)
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
        managers = {
            "manager": manager,
            "manager_factory": manager_factory,
            "manager_agent": manager_agent,
            "manager_agent_factory": manager_agent_factory,
        }
        set_options = {key: option for key, option in options.items() if option is not None}
        self._make_manager = _choose_manager(managers, set_options)

    def with_plan_review(self, enable: bool = True) -> Self:
        """Request approval of each plan before the team works on it."""
        self._enable_plan_review = enable
        return self

    def build(self) -> Workflow:
        """Raises WorkflowValidationError or ValueError."""
        executors = {participant.name: participant.executor(MagenticAgentExecutor) for participant in self._team}
        members = [member_of(executors[participant.name], participant.description) for participant in self._team]
        orchestrator = MagenticOrchestrator(self._make_manager, members, enable_plan_review=self._enable_plan_review)
        designation = designate(self._team, self._output_from, self._intermediate_output_from, always=[ORCHESTRATOR_ID])
        rounds = orchestrator.manager.max_round_count
        iterations = DEFAULT_MAX_ITERATIONS if rounds is None else max(DEFAULT_MAX_ITERATIONS, 2 * rounds + 2)
        builder = self._workflow_builder(self._team, orchestrator, designation, max_iterations=iterations)
        for executor in executors.values():
            builder.add_edge(orchestrator, executor).add_edge(executor, orchestrator)
        return builder.build()


def _choose_manager(managers: dict[str, Any], options: dict[str, Any]) -> Callable[[], MagenticManagerBase]:
    """A function that makes a manager. Raises ValueError or TypeError for invalid arguments."""
    [*named] = [name for name, manager in managers.items() if manager is not None]
    if len(named) != 1:
        got = " and ".join(named) or "none"
        raise ValueError(f"Give exactly one of {', '.join(managers)}; {got} was given.")
    name, chosen = named[0], managers[named[0]]
    if name in ("manager", "manager_factory") and options:
        raise ValueError(f"{', '.join(options)} applies to an agent: a {name} has its own. Set it there.")
    if name == "manager":
        if not isinstance(chosen, MagenticManagerBase):
            raise TypeError(f"manager= expects a MagenticManagerBase, got {chosen!r}. For an agent: manager_agent=.")
        return partial(copy.copy, chosen)
    if name.endswith("factory") and not callable(chosen):
        raise TypeError(f"{name}= expects a function, got {chosen!r}.")
    if name == "manager_factory":
        return chosen  # type: ignore[no-any-return]  # the orchestrator checks its result
    make_agent: Callable[[], Any] = chosen if name == "manager_agent_factory" else lambda: chosen

    def make() -> MagenticManagerBase:
        agent = adapt_agent(make_agent())
        if not is_agent(agent):
            raise TypeError(f"{name}= expects an agent (something with run() and a name), got {agent!r}.")
        return StandardMagenticManager(agent, **options)

    if name == "manager_agent":
        make()  # reports invalid prompts or limits early
    return make
