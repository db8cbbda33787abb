"""`perdure state`, `diff`, `fork`, `rewind`, `pin` and `unpin`: show, compare and use checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import asdict

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.delta.chunk_types import same_ends
from perdure.checkpoints.history.diff import Change, CheckpointDiff
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.contents import contents_tree, print_contents, print_depths, print_questions, question_tree
from perdure.cli.errors import Mistake, busy
from perdure.cli.options import (
    StoreLocation,
    checkpoint_argument,
    confirm,
    find_checkpoint,
    find_checkpoint_of,
    find_thread,
    output_and_store_options,
    store_command,
    takeover_option,
    thread_argument,
    work_in,
    yes_option,
)
from perdure.cli.tables import format_time, print_facts, print_folded, print_json, print_result
from perdure.cli.values import make_printable, shorten, to_full_lines, to_tree, tree_to_line
from perdure.codecs.json_codec import JsonCodec
from perdure.errors import InvalidRun, ThreadBusy, UnreadableValue, did_you_mean
from perdure.records import CheckpointInfo, ThreadInfo


@click.command(short_help="Show the content of a checkpoint.")
@checkpoint_argument("checkpoint")
@click.option("--key", metavar="KEY", help="Show only the value of this state key, in full.")
@store_command
async def state(storage: StoreCheckpointStorage, checkpoint: str, key: str | None, as_json: bool) -> None:
    """Show the content of CHECKPOINT: state, requests, outputs, and due deliveries.

    CHECKPOINT is an id, the beginning of an id, or a thread's id, which names its newest checkpoint.
    """
    info = await find_checkpoint(storage, checkpoint)
    contents = await storage.load(info)
    if key is not None:
        if key not in contents.state:
            keys = ", ".join(map(repr, contents.state)) or "none"
            guess = did_you_mean(key, contents.state)
            raise Mistake(f"The state of {info.checkpoint_id!r} has no key {key!r}{guess}. Its keys: {keys}.")
        if as_json:
            print_json(to_tree(contents.state[key]))
        else:
            click.echo("\n".join(to_full_lines(contents.state[key])))
    elif as_json:
        requests = [question_tree(event) for event in contents.pending_request_info_events.values()]
        print_json({**asdict(info), "requests": requests, **contents_tree(contents)})
    else:
        _print(info, contents)


def _print(info: CheckpointInfo, checkpoint: WorkflowCheckpoint) -> None:
    print_facts(
        [
            ("checkpoint", info.checkpoint_id),
            ("thread", info.thread_id),
            ("workflow", info.workflow_name),
            ("made", f"{format_time(info.timestamp)}, by commit {info.number}, after superstep {info.iteration_count}"),
            ("status", info.status),
            ("follows", info.previous_checkpoint_id or ""),
            ("pinned", "yes" if info.is_pinned else ""),
        ]
    )
    print_questions(checkpoint)
    print_contents(checkpoint)
    print_depths(checkpoint)


VALUE = 200
"""Characters of a value; `--json` has all of it."""
CONTEXT = 20
"""Characters that are shown before the place where two long texts part."""
COLOURS = {"added": "green", "removed": "red", "changed": "yellow"}


@click.command(short_help="Compare two checkpoints.")
@checkpoint_argument("before", "A")
@checkpoint_argument("after", "[B]", required=False)
@store_command
async def diff(storage: StoreCheckpointStorage, before: str, after: str | None, as_json: bool) -> None:
    """Show the differences from checkpoint A to checkpoint B. Without B, show what A changed.

    Both are ids, the beginnings of ids, or ids of threads, which name their newest checkpoints. They may be on
    different branches, or of different threads.
    """
    difference = await _compare(storage, before, after)
    if as_json:
        print_json(difference.to_dict())
        return
    for change in difference:
        _print_change(change)
    if difference.is_empty:
        click.echo("The checkpoints do not differ.")


async def _compare(storage: StoreCheckpointStorage, before: str, after: str | None) -> CheckpointDiff:
    first = await find_checkpoint(storage, before)
    if after is not None:
        return await storage.diff(first, await find_checkpoint(storage, after))
    if first.previous_checkpoint_id is None:
        raise Mistake(
            f"Checkpoint {first.checkpoint_id!r} is the first of thread {first.thread_id!r}: no checkpoint precedes "
            "it. Name the checkpoint to compare it with."
        )
    return await storage.diff(first.previous_checkpoint_id, first)


def _print_change(change: Change) -> None:
    path, old, new = make_printable(change.path), change.old_tree, change.new_tree
    if change.kind == "added":
        line = f"+ {path} = {_format_value(new)}"
    elif change.kind == "removed":
        line = f"- {path} = {_format_value(old)}"
    else:
        common = _common_prefix(old, new)
        line = f"~ {path}: {_format_value(old, common)} -> {_format_value(new, common)}"
    print_folded(line, 4, fg=COLOURS[change.kind])


def _common_prefix(old: Any, new: Any) -> int:
    """How many characters two texts begin with alike, but for a few; 0 if they can be shown as they are."""
    if not isinstance(old, str) or not isinstance(new, str) or max(len(old), len(new)) <= VALUE:
        return 0
    return max(0, same_ends(old, new)[0] - CONTEXT)


def _format_value(tree: Any, alike: int = 0) -> str:
    return f"...{shorten(tree_to_line(tree[alike:]), VALUE)}" if alike else shorten(tree_to_line(tree), VALUE)


@click.command(short_help="Start a new thread from a checkpoint.")
@checkpoint_argument("checkpoint")
@click.option("--thread", "thread_id", metavar="ID", help="The id of the new thread; generated if left out.")
@click.option("--set", "changes", metavar="KEY=JSON", multiple=True, help="Set a state key to a value.")
@click.option("--remove", "removed", metavar="KEY", multiple=True, help="Remove a state key.")
@store_command
async def fork(
    storage: StoreCheckpointStorage,
    checkpoint: str,
    thread_id: str | None,
    changes: Sequence[str],
    removed: Sequence[str],
    as_json: bool,
) -> None:
    """Start a new thread with the content of CHECKPOINT. Nothing runs, and the thread of CHECKPOINT does not change.

    A value that is set must have the type of the present value. It is JSON; values of other types have the form that
    `perdure state CHECKPOINT --key KEY --json` shows.
    """
    if thread_id == "":
        raise click.UsageError("--thread: an id has at least one character.")
    update = dict(map(_parse_change, changes))
    both = [key for key in removed if key in update]
    if both:
        raise click.UsageError(f"--set and --remove both name {both[0]!r}: give it a value, or remove it.")
    source = await find_checkpoint(storage, checkpoint)
    try:
        forked = await storage.fork(source, thread_id=thread_id, update_state=update, remove_state=removed)
    except InvalidRun as error:
        raise Mistake(str(error).replace("remove_state", "--remove").replace("update_state", "--set")) from error
    begins = f"Thread {forked.thread_id} begins with checkpoint {source.checkpoint_id}"
    store = click.get_current_context().params["store"]
    _print_head(forked, f"{begins}, commit {source.number} of {source.thread_id}.", store, as_json=as_json)


def _print_head(head: CheckpointInfo, sentence: str, store: str | None, *, as_json: bool) -> None:
    """The new head of a thread, and how to continue."""
    print_result(asdict(head), sentence, as_json=as_json)
    if not as_json:
        click.echo(f"Continue with: {StoreLocation('APP', head.thread_id, store).resume()}")


def _parse_change(text_pair: str) -> tuple[str, Any]:
    """Raises UsageError for what is not KEY=JSON."""
    key, equals, text = text_pair.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--set: expected KEY=JSON, such as 'limit=50', got {text_pair!r}.")
    try:
        return key, JsonCodec(lenient=True).decode(json.loads(text), f"the value of {key!r}")
    except ValueError as error:
        hint = f""" A text is JSON, too, in quotes: --set '{key}="{text}"'.""" if text.isalpha() else ""
        raise click.UsageError(f"--set: the value of {key!r} is not valid JSON: {error}.{hint}") from error
    except UnreadableValue as error:
        raise click.UsageError(f"--set: {error}") from error


@click.command(short_help="Rewind a thread to a checkpoint.")
@thread_argument
@checkpoint_argument("checkpoint")
@takeover_option
@yes_option
@output_and_store_options
def rewind(thread_id: str, checkpoint: str, takeover: bool, yes: bool, as_json: bool, store: str | None) -> None:
    """Rewind THREAD to CHECKPOINT, one of its own. Nothing runs.

    Later checkpoints stay as a branch: `perdure show THREAD --branches`. A question that was answered after CHECKPOINT
    is asked again.
    """

    async def look(storage: StoreCheckpointStorage) -> tuple[ThreadInfo, CheckpointInfo]:
        thread = await find_thread(storage, thread_id)
        if thread.run_id is not None and not takeover:
            raise _busy(thread_id, thread.run_id)
        return thread, await find_checkpoint_of(storage, thread, checkpoint)

    async def work(storage: StoreCheckpointStorage) -> CheckpointInfo:
        try:
            return await storage.rewind(thread_id, target, takeover=takeover)
        except ThreadBusy as busy:
            raise _busy(thread_id, busy.run_id) from busy

    thread, target = work_in(store, look)
    confirm(
        f"Rewind thread {make_printable(thread_id)} from commit {thread.number} to commit {target.number} of "
        f"{format_time(target.timestamp)}?",
        yes=yes,
    )
    head = work_in(store, work)
    rewinds = f"Commit {head.number} rewinds thread {thread_id} to commit {target.number}."
    _print_head(head, f"{rewinds} The commits in between are now a branch.", store, as_json=as_json)


def _busy(thread_id: str, run_id: str | None) -> Mistake:
    return Mistake(busy(thread_id, run_id, "changed", "add --takeover"))


@click.command(short_help="Protect a checkpoint from pruning.")
@checkpoint_argument("checkpoint")
@store_command
async def pin(storage: StoreCheckpointStorage, checkpoint: str, as_json: bool) -> None:
    """Protect CHECKPOINT from retention and `perdure prune`. To pin it again changes nothing."""
    await _set_pin(storage, checkpoint, as_json=as_json, is_pinned=True)


@click.command(short_help="Allow pruning of a checkpoint.")
@checkpoint_argument("checkpoint")
@store_command
async def unpin(storage: StoreCheckpointStorage, checkpoint: str, as_json: bool) -> None:
    """Let retention and `perdure prune` remove CHECKPOINT again."""
    await _set_pin(storage, checkpoint, as_json=as_json, is_pinned=False)


async def _set_pin(storage: StoreCheckpointStorage, checkpoint: str, *, as_json: bool, is_pinned: bool) -> None:
    info = await find_checkpoint(storage, checkpoint)
    await (storage.pin(info) if is_pinned else storage.unpin(info))
    note = "pinned: pruning keeps it" if is_pinned else "no longer pinned: pruning may remove it"
    sentence = f"{info.checkpoint_id} (commit {info.number} of {info.thread_id}) is {note}."
    print_result({**asdict(info), "is_pinned": is_pinned}, sentence, as_json=as_json)
