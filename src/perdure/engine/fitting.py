"""Does a checkpoint fit the workflow of today? What changed, and what is left of it where that is forced."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.checkpoints.checkpoint import ChildCheckpoint, WorkflowCheckpoint
from perdure.checkpoints.migrations import Migrator
from perdure.engine.compiled import Compiled
from perdure.engine.position import Position, position_of
from perdure.errors import DamagedCheckpoint, IncompatibleWorkflow
from perdure.events import WorkflowEvent
from perdure.graph.signature import differences


def check_fits(
    checkpoint: WorkflowCheckpoint, compiled: Compiled, *, force: bool, migrator: Migrator | None = None
) -> list[WorkflowEvent]:
    """A warning for harmless changes since the checkpoint was made, and one for migrations that were applied to it.
    Raises IncompatibleWorkflow for other changes."""
    breaking, added = changes_since(checkpoint, compiled)
    if migrator is not None:
        breaking = [*migrator.differences, *breaking]
    if breaking and not force:
        raise IncompatibleWorkflow(checkpoint.checkpoint_id, compiled.graph.name, breaking)
    warnings: list[str] = []
    if migrator is not None and migrator.applied:
        warnings.append(f"Migrations were applied to the checkpoint: {', '.join(migrator.applied)}.")
    if breaking or added:
        changes = "; ".join((*breaking, *added))
        warnings.append(f"The workflow changed since the checkpoint was made: {changes}.")
    return [WorkflowEvent("warning", text) for text in warnings]


def changes_since(checkpoint: WorkflowCheckpoint, compiled: Compiled) -> tuple[list[str], list[str]]:
    """(what breaks, what was only added) since the checkpoint was made."""
    name = compiled.graph.name
    breaking: list[str] = []
    added: list[str] = []
    if checkpoint.workflow_name != name:
        breaking.append(f"the workflow was called {checkpoint.workflow_name!r} and is called {name!r}")
    if checkpoint.graph_signature_hash != compiled.signature_hash:
        if checkpoint.graph_signature:
            broken, added = differences(checkpoint.graph_signature, compiled.signature)
            breaking += broken
        else:
            breaking.append("its graph signature is another one")
    gone = sorted(_gone(checkpoint, compiled, ""))
    if gone and checkpoint.graph_signature_hash == compiled.signature_hash:
        reason = f"something is due to executor {gone[0]!r}, which its graph does not have"
        raise DamagedCheckpoint(checkpoint.checkpoint_id, reason)
    breaking += [f"something is due to executor {executor_id!r}, which is gone" for executor_id in gone]
    return breaking, added


def _gone(level: WorkflowCheckpoint | ChildCheckpoint, compiled: Compiled, path: str) -> set[str]:
    """Executors that something is due to, and that the graph does not have, by path."""
    known = compiled.graph.nodes
    due = {*(str(one.target_id) for one in level.deliveries)}
    due |= {_asker(one, known) for one in level.pending_request_info_events.values()}
    due |= {str(one.message.target_id) for one in level.suspended.values()}
    due |= {one.executor_id for one in level.children.values()}
    gone = {f"{path}{executor_id}" for executor_id in due if executor_id not in known}
    for child in level.children.values():
        inner = compiled.children.get(child.executor_id)
        if inner is not None:
            gone |= _gone(child, inner, f"{path}{child.executor_id}/")
        elif child.executor_id in known:  # it is there, but runs no sub-workflow any more
            gone.add(f"{path}{child.executor_id}")
    return gone


def _asker(request: WorkflowEvent, known: Iterable[str]) -> str:
    """The executor of this very workflow that waits for the answer, itself or for its sub-workflow."""
    asker = str(request.source_executor_id)
    if request.child_id is None:
        return asker
    return next((one for one in known if asker.startswith(f"{one}/")), asker)


def fitting_position(checkpoint: WorkflowCheckpoint, compiled: Compiled) -> Position:
    """Where the checkpoint is. With force=True what was due to executors that are gone is left out."""
    position = position_of(checkpoint)
    _leave_out(position, compiled)
    return position


def _leave_out(position: Position, compiled: Compiled) -> None:
    known = compiled.graph.nodes
    position.mailbox = [message for message in position.mailbox if message.target_id in known]
    position.requests = {key: one for key, one in position.requests.items() if _asker(one, known) in known}
    position.suspended = {key: one for key, one in position.suspended.items() if one.message.target_id in known}
    position.children = {key: one for key, one in position.children.items() if one.executor_id in compiled.children}
    position.saved = {key: one for key, one in position.saved.items() if key in known}
    for child in position.children.values():
        _leave_out(child.position, compiled.children[child.executor_id])
