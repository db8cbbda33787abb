"""A workflow as a plain async function: concurrent steps, a question, and a resume that repeats no step.

The function stops at its question. A second workflow object, as in a restarted service, receives the answer. Then the
function runs again from the top, and does not call the finished steps a second time.

    python examples/function_workflow.py
"""

import asyncio

from perdure import InMemoryCheckpointStorage, RunContext, step, workflow

calls: list[str] = []  # the real calls in both "processes"


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
    texts = await asyncio.gather(*(search(topic) for topic in topics))
    summary = await summarise(texts)
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
