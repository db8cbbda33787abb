"""`holdfast resume`: go on with a thread that was interrupted, or see where it rests."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.apps import load_app
from holdfast.cli.moving import Move, move_on
from holdfast.cli.places import Place, find_thread, json_option, store_option, thread_argument


@click.command(short_help="Go on with a thread.")
@click.argument("app")
@thread_argument
@click.option("--takeover", is_flag=True, help="Take the thread from whoever holds it, such as a process that hangs.")
@json_option
@store_option
def resume(app: str, thread_id: str, takeover: bool, as_json: bool, store: str | None) -> None:
    """Go on with THREAD of the workflow APP until it rests.

    What had finished is not run again. A thread that waits tells its questions again, a finished one its outputs.
    """

    async def prepare(storage: Any) -> Move:
        await find_thread(storage, thread_id)
        return Move(None, {"takeover": takeover})

    move_on(load_app(app), Place(app, thread_id, store), prepare, as_json=as_json)
