"""A workflow written as a plain async function: steps at the same time, a question, and a resume that repeats nothing.

The function stops where it asks. A second workflow object, as a restarted service would have it, gets the answer:
the function runs again from the top, and the steps that had ended are not called a second time.

    python examples/function_workflow.py
"""

import asyncio

from perdure import InMemoryCheckpointStorage, RunContext, step, workflow

calls: list[str] = []  # what was really called, in both "processes"


@step
async def search(topic: str) -> str:
    calls.append(f"search {topic}")
    return f"all about {topic}"


@step
def summarise(texts: list[str]) -> str:  # not async: it runs in a thread
    calls.append("summarise")
    return f"{len(texts)} texts, summarised"


@step
async def publish(text: str) -> str:
    calls.append("publish")
    return f"published: {text}"


@workflow
async def digest(topics: list[str], ctx: RunContext) -> str:
    found = await asyncio.gather(*(search(topic) for topic in topics))
    summary = await summarise(found)
    if not await ctx.request_info(f"May I publish '{summary}'?", bool):
        return "kept in the drawer"
    return await publish(summary)


async def main() -> None:
    storage = InMemoryCheckpointStorage()

    first = await digest.build(storage).run(["tides", "moons"], thread_id="monday")
    [request] = first.get_request_info_events()
    print("asked:", request.data)
    print("called so far:", calls)

    calls.clear()
    second = await digest.build(storage).run(responses={str(request.request_id): True}, thread_id="monday")
    print(second.get_outputs()[0])
    print("called after the answer:", calls)
    bypassed = [event.executor_id for event in second if event.type == "executor_bypassed"]
    print("taken from the record:", bypassed)


if __name__ == "__main__":
    asyncio.run(main())
