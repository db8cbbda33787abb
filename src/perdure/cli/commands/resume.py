"""`perdure resume`: continue a thread that was interrupted, or print where it rests."""

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
from perdure.cli.running.run_thread import Input, run_thread


@click.command(short_help="Continue a thread.")
@click.argument("app")
@click.argument("thread_id", metavar="[THREAD]", required=False, shell_complete=complete_threads)
@click.option("--thread", "named", metavar="ID", shell_complete=complete_threads, help="THREAD, as `run` names it.")
@click.option("--takeover", is_flag=True, help="Take the thread from its owner, such as a process that hangs.")
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
    """Continue THREAD of the workflow APP until it rests.

    Finished work does not run again. A waiting thread prints its requests again, a finished one its outputs.
    """
    if (thread_id is None) is (named is None):
        raise click.UsageError("Name one thread: `perdure resume APP THREAD`, or --thread ID.")
    place = StoreLocation(app, str(thread_id or named), store, sessions)

    async def prepare(storage: Any, _: Any) -> Input:
        await find_thread(storage, place.thread_id)
        return Input(None, {"takeover": takeover})

    run_thread(load_app(app, store, place.thread_id), place, prepare, as_json=as_json)
