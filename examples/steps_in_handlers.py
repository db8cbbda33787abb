"""Inside one handler: recorded steps, a key for outside services, sleep that survives a restart, and a logger.

The handler charges a card, sleeps until the next day and sends a receipt. The process "dies" while the handler sleeps.
The next process resumes the thread and does not charge the card again.

    python examples/steps_in_handlers.py
"""

import asyncio
import logging
import sys
from typing import Never

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor
from perdure.testing import EventRecorder, FakeClock

clock = FakeClock()  # so that this example does not take a day
storage = InMemoryCheckpointStorage()
charged: dict[str, int] = {}  # the books of the payment service, by idempotency key


@executor
async def bill(amount: int, ctx: WorkflowContext[Never, str]) -> None:
    def charge(cents: int) -> str:
        # Every attempt of this step has the same key, so a service that checks keys charges once.
        charged[ctx.idempotency_key] = cents
        return f"receipt {len(charged)}"

    receipt = await ctx.step(charge, amount)  # a finished step is not called again for this message
    ctx.logger.info("charged, sleeping until tomorrow")  # outside of steps: logged again when the handler runs again
    await ctx.sleep(24 * 3600)  # recorded too: it ends at the same time in any process
    sent = await ctx.step(str.upper, receipt, name="send")
    await ctx.yield_output(sent)


def build() -> Workflow:
    return WorkflowBuilder(name="billing", start_executor=bill, checkpoint_storage=storage, clock=clock).build()


async def main() -> None:
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(logging.Formatter("log: %(message)s"))
    logging.getLogger("perdure.executor").addHandler(lines)
    logging.getLogger("perdure.executor").setLevel("INFO")

    recorder = EventRecorder()
    first = asyncio.create_task(recorder.collect(build().run(1999, thread_id="card-7", run_id="monday", stream=True)))
    await clock.wait_for_sleepers()
    first.cancel()  # the process is gone
    await asyncio.wait([first])
    print("called on monday:", [event.executor_id for event in recorder.of_type("executor_invoked")])

    clock.advance(24 * 3600)
    result = await build().run(thread_id="card-7", run_id="tuesday")
    print("called on tuesday:", [e.executor_id for e in result if e.type == "executor_invoked" and not e.replayed])
    print("from the record:", [event.executor_id for event in result if event.type == "executor_bypassed"])
    print("outputs:", result.get_outputs())
    print("charges in the books:", list(charged.values()))


if __name__ == "__main__":
    asyncio.run(main())
