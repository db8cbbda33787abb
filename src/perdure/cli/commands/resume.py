"""`perdure resume`: go on with a thread that was interrupted, or see where it rests."""

from __future__ import annotations

from typing import Any

import click

from perdure.cli.options.app import load_app
from perdure.cli.options.store import (
    StoreLocation,
    complete_threads,
    find_thread,
    json_option,
    sessions_option,
    store_option,
)
from perdure.cli.running.run_thread import Move, move_on


@click.command(short_help="Go on with a thread.")
@click.argument("app")
@click.argument("thread_id", metavar="[THREAD]", required=False, shell_complete=complete_threads)
@click.option("--thread", "named", metavar="ID", shell_complete=complete_threads, help="THREAD, as `run` names it.")
@click.option("--takeover", is_flag=True, help="Take the thread from whoever holds it, such as a process that hangs.")
@sessions_option
@json_option
@store_option
def resume(
    app: str,
    thread_id: str | None,
    named: str | None,
    takeover: bool,
    sessions: str | None,
    as_json: bool,
    store: str | None,
) -> None:
    """Go on with THREAD of the workflow APP until it rests.

    What had finished is not run again. A thread that waits tells its questions again, a finished one its outputs.
    """
    if (thread_id is None) is (named is None):
        raise click.UsageError("Name one thread: `perdure resume APP THREAD`, or --thread ID.")
    place = StoreLocation(app, str(thread_id or named), store, sessions)

    async def prepare(storage: Any, _: Any) -> Move:
        await find_thread(storage, place.thread_id)
        return Move(None, {"takeover": takeover})

    move_on(load_app(app, store, place.thread_id), place, prepare, as_json=as_json)
