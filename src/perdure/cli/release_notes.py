"""The workflow that `perdure demo` runs: three writers at once, an editor, a person who decides, a publisher.

    python -m perdure.cli.release_notes [REQUEST yes|no]

The first process in a folder starts the thread, each later one resumes it. Every event is a line of JSON.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from perdure import RunContext, SqliteCheckpointStorage, workflow

STORE, VERSION, SECONDS = Path("perdure.db"), "v0.1.0", 15
IS_FIRST = not STORE.exists()
CHANGES = {
    "features": "resume any thread by its id",
    "fixes": "a join survives a restart; answers are checked before they are accepted",
    "thanks": "everyone who sent a report",
}
STEPS = (*CHANGES, "edit", "publish")
all_at_work = asyncio.Barrier(len(CHANGES))


async def perform(step: str, result: str) -> str:
    """Report to the parent, outside of every checkpoint. In the first process only one of the writers finishes."""
    report(step, "started")
    if IS_FIRST:
        await all_at_work.wait()
        await asyncio.sleep(0 if step == "features" else SECONDS)
    report(step, "finished")
    return result


@workflow
async def release_notes(version: str, ctx: RunContext) -> str:
    writers = [ctx.step(perform, title, f"{title}: {text}", name=title) for title, text in CHANGES.items()]
    draft = await ctx.step(perform, "edit", "\n".join(await asyncio.gather(*writers)), name="edit")
    is_approved = await ctx.request_info(draft, bool)
    text = f"{version} is published\n{draft}" if is_approved else f"{version} was not published: you said no"
    return str(await ctx.step(perform, "publish", text, name="publish"))


def report(who: str, what: str, **more: object) -> None:
    os.write(1, json.dumps({"who": who, "what": what, **more}).encode() + b"\n")


async def main(*answer: str) -> None:
    message, responses = VERSION if IS_FIRST else None, {answer[0]: answer[1] == "yes"} if answer else None
    async with asyncio.timeout(SECONDS), SqliteCheckpointStorage(STORE) as storage:
        stream = release_notes.build(storage).run(message, thread_id=VERSION, responses=responses, stream=True)
        async for event in stream:
            step = str(event.executor_id).rpartition("/")[2]
            if event.type == "executor_completed" and IS_FIRST:
                report(step, "recorded: its outcome is on the disk")
            elif event.type == "executor_bypassed" and step in STEPS:
                report(step, "replayed from the journal, not run again")
            elif event.type == "request_info" and not event.replayed:
                report("edit", "asks a person; the process ends", request_id=event.request_id, text=event.data)
            elif event.type == "output":
                report("publish", "the workflow has its result", text=event.data)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
