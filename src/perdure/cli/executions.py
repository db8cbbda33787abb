"""An execution of a workflow of agents, moved on until it rests."""

from __future__ import annotations

from typing import Any

from perdure.cli.documents import built, own_storage
from perdure.cli.execution_lines import ExecutionProgress, result_tree, tell_result
from perdure.cli.mistakes import Mistake
from perdure.cli.moving import Prepare, how_to_go_on, until_it_rests
from perdure.cli.places import Place, find_store
from perdure.cli.tables import print_json
from perdure.engine.stream import ResponseStream
from perdure.orchestrations.agent_workflow.builder import AgentWorkflow
from perdure.orchestrations.agent_workflow.instance import AgentWorkflowInstance
from perdure.orchestrations.agent_workflow.result import WorkflowResult
from perdure.orchestrations.agent_workflow.standing import Standing


def move_execution(
    workflow: AgentWorkflow, place: Place, prepare: Prepare, *, may_be_new: bool = False, as_json: bool = False
) -> None:
    """Run the thread until it rests, and tell what happens; as JSON only how it rests. Ends the process, with a
    sentence, if it fails, or if one of its agents did."""
    progress = ExecutionProgress(place, is_silent=as_json)
    storage = find_store(place.store, own_storage(workflow), may_be_new=may_be_new)
    until_it_rests(_move(workflow, storage, place, prepare, progress), progress, place)


async def _move(
    workflow: AgentWorkflow, storage: Any, place: Place, prepare: Prepare, progress: ExecutionProgress
) -> None:
    try:
        instance = built(workflow, storage, place)
        progress.before = await _standing(instance, storage, place.thread_id)
        async with await _begun(instance, storage, place, prepare) as stream:
            async for event in stream:
                progress.tell(event)
            result = await stream
    finally:
        await storage.close()
    progress.begin()
    if progress.is_silent:
        print_json(result_tree(result))
    else:
        tell_result(result, place)
    if result.state == "failed":
        raise Mistake(how_to_go_on(f"The execution stopped: {result.error}", place))
    if result.state == "completed" and not result.success:
        raise Mistake(f"The execution has ended, and not well: {result.error}")


async def _standing(instance: AgentWorkflowInstance, storage: Any, thread_id: str) -> Standing | None:
    """How far it was; None for a new one, and for one of another workflow, which is refused later."""
    if not await storage.store.threads(workflow_name=instance.name, thread_id=thread_id):
        return None
    known = await instance.find(thread_id)
    return None if known is None else known.standing


async def _begun(
    instance: AgentWorkflowInstance, storage: Any, place: Place, prepare: Prepare
) -> ResponseStream[Any, WorkflowResult]:
    move = await prepare(storage, instance.workflow)
    options: dict[str, Any] = {"on_busy": "reject", **(move.options or {})}
    responses = options.pop("responses", None)
    return instance._moved(place.thread_id, move.message, responses, options)
