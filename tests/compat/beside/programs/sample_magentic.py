"""Magentic teams: prints of a stream, a plan that the user revises, a checkpoint of that, and as an agent."""

import json
from typing import Any

from _samples import printed, talker
from flows import (
    AgentResponseUpdate,
    GroupChatRequestSentEvent,
    InMemoryCheckpointStorage,
    MagenticBuilder,
    MagenticPlanReviewRequest,
    MagenticProgressLedger,
    Message,
)


def judged(speaker: str, *, is_done: bool = False) -> str:
    answers: dict[str, Any] = {
        "is_request_satisfied": is_done,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": speaker,
        "instruction_or_question": "Continue",
    }
    return json.dumps({name: {"reason": "so", "answer": answer} for name, answer in answers.items()})


def team(storage: Any = None, *, replies: tuple[str, ...] = (), **options: Any) -> Any:
    verdicts = [judged("ann"), judged("bob"), judged("bob", is_done=True)]
    scripts = [[text] for text in ("facts", "plan", *replies, *verdicts, "It is done")]
    return MagenticBuilder(
        participants=[talker("ann", "found it"), talker("bob", "wrote it")],
        manager_agent=talker("manager", *scripts),
        max_round_count=10,
        max_stall_count=3,
        max_reset_count=2,
        checkpoint_storage=storage,
        **options,
    ).build()


@printed
async def main() -> None:
    async for event in team(intermediate_output_from="all_other").run("A report", stream=True):
        data = event.data
        if event.type in ("output", "intermediate") and isinstance(data, AgentResponseUpdate):
            print(event.type, event.executor_id, data.author_name, data.text)
        elif event.type == "magentic_orchestrator":
            shown = data.content.to_dict() if isinstance(data.content, MagenticProgressLedger) else type(data.content)
            print(data.event_type.name, shown if isinstance(shown, dict) else shown.__name__)
        elif event.type == "group_chat" and isinstance(data, GroupChatRequestSentEvent):
            print("asked", data.participant_name, data.round_index)
        elif event.type.startswith("executor") and "magentic" in event.executor_id:
            print(event.type, event.executor_id)
    result = await team().run(Message("user", ["A report"]))
    print([output.text for output in result.get_outputs()], result.get_final_state())

    storage = InMemoryCheckpointStorage()
    options: Any = {"enable_plan_review": True, "replies": ("other facts", "other plan")}
    workflow = team(storage, **options)
    [asked] = (await workflow.run("A report")).get_request_info_events()
    latest = await storage.get_latest(workflow_name=workflow.name)
    print(isinstance(asked.data, MagenticPlanReviewRequest), "facts" in asked.data.plan.text, asked.data.is_stalled)
    [revised] = (
        await workflow.run(responses={asked.request_id: asked.data.revise("Shorter")})
    ).get_request_info_events()
    print("other plan" in revised.data.plan.text, revised.data.current_progress is None)
    result = await workflow.run(responses={revised.request_id: revised.data.approve()})
    print([output.text for output in result.get_outputs()])
    options["replies"] = ()
    restored = team(storage, **options)
    restored.name = workflow.name
    [again] = (await restored.run(checkpoint_id=latest.checkpoint_id)).get_request_info_events()
    print(again.request_id == asked.request_id, again.data.plan.text == asked.data.plan.text)

    response = await team(intermediate_output_from="all_other").as_agent(name="team").run("A report")
    print([(message.author_name, message.text) for message in response.messages])
    agent = team(intermediate_output_from="all_other").as_agent(name="team")
    print([(update.author_name, update.text) async for update in agent.run("A report", stream=True)])
