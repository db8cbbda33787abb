"""A workflow taken to its end, whatever happened before, and what it came to: to be compared with another time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.checkpoints.any_storage import read_lineage
from perdure.checkpoints.encoding.encode import encode_checkpoint, tool_codec
from perdure.codec import Tree
from perdure.engine.run.run import WorkflowRunResult
from perdure.events import WorkflowEvent
from perdure.testing.faults import Point, When
from perdure.testing.survival.recorded import Doing
from perdure.workflows.functions import FunctionalWorkflow
from perdure.workflows.workflow import Workflow

POINTS: tuple[Point, ...] = ("commit", "journal")
MOMENTS: tuple[When, ...] = ("before", "after")
"""Where an undisturbed run is interrupted: before and after each write of these kinds."""

THREAD = "survivor"
"""The same in every trial, so that ids and idempotency keys are comparable; each trial has a storage of its own."""

MakeWorkflow: TypeAlias = "Callable[[Any], Workflow] | FunctionalWorkflow[Any, Any]"
"""Makes a new workflow object over a storage. A function workflow does that itself: `flow`, or `flow.build`."""

Answers: TypeAlias = "Mapping[Any, Any] | Callable[[WorkflowEvent], Any]"
"""Answers by request id or by question; or a function of the `request_info` event."""

_COMPARED = ("executor_id", "state", "executors", "buffers")
"""Parts of the last checkpoint that must be the same; the others hold ids and times, or are seen at rest."""


@dataclass(frozen=True)
class Survival:
    """What an assertion that holds has tried."""

    points: tuple[str, ...]
    """Where the run was interrupted and reached the same end, such as `after commit 3`."""
    seed: int | None = None
    """Of the moments that were left to chance."""


@dataclass(frozen=True)
class Ending:
    """How a thread ended, as plain JSON."""

    rests: list[Tree]
    """Status, outputs and open questions each time that the thread came to rest, the last one being the end."""
    parts: dict[str, Tree]
    """State and what executors keep, at the end."""
    calls: Counter[Doing]
    """Executors and steps that were called on the way."""


def build(make_workflow: MakeWorkflow, storage: Any) -> Workflow:
    """Raises TypeError if it makes something else."""
    make = make_workflow.build if isinstance(make_workflow, FunctionalWorkflow) else make_workflow
    made = make(storage)
    if not isinstance(made, Workflow):
        raise TypeError(f"make_workflow is called with a storage and must give a Workflow, got {made!r}.")
    return made


async def has_begun(workflow: Workflow, storage: Any, thread_id: str = THREAD) -> bool:
    return bool(await read_lineage(storage, thread_id, workflow.name))


async def take_to_the_end(
    workflow: Workflow,
    storage: Any,
    message: Any,
    answers: Answers | None,
    *,
    takeover: bool = False,
    thread_id: str = THREAD,
) -> Ending:
    """Begin, or resume the thread, and answer until nothing is open that has an answer."""
    options: dict[str, Any] = {"thread_id": thread_id, "checkpoint_storage": storage, "takeover": takeover}
    begun = await has_begun(workflow, storage, thread_id)
    result = await workflow.run(None if begun else message, **options)
    rests, calls = [_rest(result)], Counter(_calls(result))
    while responses := answers_to(result, answers):
        result = await workflow.run(responses=responses, **options)
        rests.append(_rest(result))
        calls.update(_calls(result))
    [*_, head] = await read_lineage(storage, thread_id, workflow.name)
    tree = encode_checkpoint(head, tool_codec())
    return Ending(rests, _comparable(tree), calls)


def _comparable(tree: dict[str, Tree]) -> dict[str, Tree]:
    """State and what executors keep, of a workflow and of the sub-workflows in it that have not ended."""
    parts: dict[str, Tree] = {part: tree[part] for part in _COMPARED if part in tree}
    if "children" in tree:
        parts["children"] = [_comparable(child) for child in tree["children"]]
    return parts


def answers_to(result: WorkflowRunResult, answers: Answers | None) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for event in result.get_request_info_events() if answers is not None else ():
        request_id = str(event.request_id)
        if callable(answers):
            responses[request_id] = answers(event)
        elif answers is not None:
            for key, answer in answers.items():
                if key in (request_id, event.data):
                    responses[request_id] = answer
    return responses


def _rest(result: WorkflowRunResult) -> Tree:
    codec = tool_codec()
    questions = {
        str(event.request_id): codec.encode(event.data, "question") for event in result.get_request_info_events()
    }
    return {
        "status": result.get_final_state().value,
        "outputs": codec.encode(result.get_outputs(), "outputs"),
        "intermediate outputs": codec.encode(result.get_intermediate_outputs(), "outputs"),
        "questions": questions,
    }


def _calls(result: WorkflowRunResult) -> Iterator[Doing]:
    for event in result:
        if event.type == "executor_invoked" and not event.replayed:
            yield str(event.executor_id), event.child_id


# ---------------------------------------------------------------- comparing


def problems(calm: Ending, resumed: Ending, recorded: Counter[Doing] | None) -> list[str]:
    """What is wrong with a run that was interrupted and resumed, in sentences; nothing if it survived.

    `recorded` is what the storage had when it was interrupted; None where the storage keeps no record.
    """
    differences = list(_differences("at rest", calm.rests[-len(resumed.rests) :], resumed.rests))
    differences += _differences("", calm.parts, resumed.parts)
    for doing, count in (recorded or {}).items():
        allowed = max(0, calm.calls[doing] - count)
        if resumed.calls[doing] > allowed:
            differences.append(
                f"{_format_doing(doing)} is called {calm.calls[doing]} times in an undisturbed run; {count} of these "
                f"were recorded, and yet it was called {resumed.calls[doing]} times after the resume"
            )
    return differences


def _format_doing(doing: Doing) -> str:
    path, child_id = doing
    return repr(path) if child_id is None else f"{path!r} of child {child_id}"


def _differences(path: str, expected: Tree, got: Tree) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in dict.fromkeys((*expected, *got)):
            yield from _differences(f"{path}.{key}" if path else str(key), expected.get(key), got.get(key))
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (expected_item, got_item) in enumerate(zip(expected, got, strict=True)):
            yield from _differences(f"{path}[{index}]", expected_item, got_item)
    elif expected != got:
        yield f"{path}: expected {_short(expected)}, got {_short(got)}"


def _short(tree: Tree) -> str:
    text = json.dumps(tree, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}..."


def did_not_survive(workflow_name: str, point: str, differences: list[str], tried: list[str]) -> AssertionError:
    lines = [f"Workflow {workflow_name!r} does not survive {point}. The resumed run differs from an undisturbed one:"]
    lines += [f"  {problem}" for problem in differences]
    lines.append(f"Before that it survived {len(tried)} interruptions{': ' if tried else ''}{', '.join(tried)}.")
    return AssertionError("\n".join(lines))
