"""A process is killed during a payment, and another process resumes the thread: SQLite, two processes, one charge.

The workflow packs an order and then pays for it, each in a step. SIGKILL ends the first process while it waits for the
payment service, which already has its request. The second process knows only the id of the thread. It does not repeat
recorded steps. It repeats the request that was in flight with the same key, so the service charges once.

    python examples/crash_and_resume.py
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from perdure import RunContext, SqliteCheckpointStorage, step, workflow


@step
async def pack(item: str) -> str:
    print(f"packs {item}", flush=True)
    return f"a box of {item}"


def ask_the_service(amount: int, key: str) -> None:
    """A service that charges once for each key. A file records all its requests."""
    with open("requests.txt", "a", encoding="utf-8") as requests:
        requests.write(f"{key} {amount}\n")


@step
async def pay(amount: int, ctx: RunContext) -> str:
    ask_the_service(amount, ctx.idempotency_key)
    print(f"asks the service for {amount}", flush=True)
    if "start" in sys.argv:
        await asyncio.sleep(3600)  # the first process never receives the answer
    return f"paid {amount}"


@workflow
async def order(item: str, ctx: RunContext) -> str:
    box = await pack(item)
    receipt = await pay(12, ctx)
    return f"{box}, {receipt}"


async def process(message: str | None) -> None:
    """The work of a process. With a message it starts the thread, without a message it resumes the thread."""
    async with SqliteCheckpointStorage("orders.db") as storage:
        result = await order.build(storage).run(message, thread_id="order-7")
        print(f"ends with {result.get_outputs()}", flush=True)


def main() -> None:
    with TemporaryDirectory() as folder:
        for act in ("start", "resume"):
            print(f"a process to {act} the thread")
            with subprocess.Popen(
                [sys.executable, __file__, act], cwd=folder, stdout=subprocess.PIPE, text=True
            ) as child:
                for line in child.stdout or ():
                    print("  it", line, end="")
                    if act == "start" and line.startswith("asks"):
                        child.kill()  # SIGKILL: the process cannot catch, close or save anything
                        print("  it is killed")
        requests = (Path(folder) / "requests.txt").read_text(encoding="utf-8").splitlines()
        print(f"the service got {len(requests)} requests with {len(set(requests))} key")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        asyncio.run(process("tea" if "start" in sys.argv else None))
