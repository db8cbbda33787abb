"""Sub-workflows: results, requests that a parent answers or asks outside, and nested agents."""

from dataclasses import dataclass
from typing import Any, Never

from _samples import printed, talker
from flows import (
    Executor,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)


@dataclass
class Mail:
    to: str
    size: int


@dataclass
class DomainQuestion:
    domain: str


@dataclass
class SizeQuestion:
    size: int


@dataclass
class Verdict:
    to: str
    is_good: bool
    reason: str


class Validate(Executor):
    """Asks about the domain and the size."""

    def __init__(self) -> None:
        super().__init__(id="validate")

    @handler
    async def check(self, mail: Mail, ctx: WorkflowContext[Never, Verdict]) -> None:
        if "@" not in mail.to:
            await ctx.yield_output(Verdict(mail.to, False, "format"))
            return
        await ctx.request_info(request_data=DomainQuestion(mail.to.split("@")[1]), response_type=bool)
        await ctx.request_info(request_data=SizeQuestion(mail.size), response_type=str)

    @response_handler
    async def known(self, asked: DomainQuestion, is_good: bool, ctx: WorkflowContext[Never, Verdict]) -> None:
        await ctx.yield_output(Verdict(asked.domain, is_good, "domain"))

    @response_handler
    async def sized(self, asked: SizeQuestion, word: str, ctx: WorkflowContext[Never, Verdict]) -> None:
        await ctx.yield_output(Verdict(word, asked.size < 10, "size"))


class Domains(Executor):
    """Answers what it knows, and asks the user about the rest."""

    def __init__(self) -> None:
        super().__init__(id="domains")
        self.waiting: dict[str, SubWorkflowRequestMessage] = {}

    @handler
    async def asked(self, request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]) -> None:
        question = request.source_event.data
        if not isinstance(question, DomainQuestion):
            return
        print("intercepts", question.domain, request.executor_id)
        if question.domain == "known.org":
            await ctx.send_message(request.create_response(True), target_id=request.executor_id)
        else:
            self.waiting[question.domain] = request
            await ctx.request_info(question, bool, request_id=f"outside-{question.domain}")

    @response_handler
    async def answered(
        self, question: DomainQuestion, is_good: bool, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        await ctx.send_message(self.waiting.pop(question.domain).create_response(is_good))


@executor(id="sizes")
async def sizes(request: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]) -> None:
    if isinstance(request.source_event.data, SizeQuestion):
        await ctx.send_message(request.create_response("big" if request.source_event.data.size >= 10 else "small"))


class Parent(Executor):
    def __init__(self) -> None:
        super().__init__(id="parent")
        self.verdicts: list[Verdict] = []

    @handler
    async def begin(self, mails: list[Mail], ctx: WorkflowContext[Mail]) -> None:
        for mail in mails:
            await ctx.send_message(mail, target_id="mails")

    @handler
    async def take(self, verdict: Verdict, ctx: WorkflowContext[Never, Verdict]) -> None:
        self.verdicts.append(verdict)
        await ctx.yield_output(verdict)


def requests_of(kind: type) -> Any:
    return lambda message: (
        isinstance(message, SubWorkflowRequestMessage) and isinstance(message.source_event.data, kind)
    )


@executor(id="begin")
async def begin(text: str, ctx: WorkflowContext[str]) -> None:
    ctx.set_state("text", text)
    await ctx.send_message(text.upper())


@executor(id="inner")
async def inner(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"{text} {ctx.get_state('text')}")


@executor(id="end")
async def end(value: Any, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"end {getattr(value, 'text', value)}")


@printed
async def main() -> None:
    child = WorkflowExecutor(WorkflowBuilder(start_executor=Validate()).build(), id="mails")
    parent, domains = Parent(), Domains()
    builder = WorkflowBuilder(start_executor=parent).add_edge(parent, child).add_edge(child, parent)
    builder.add_edge(child, domains, condition=requests_of(DomainQuestion)).add_edge(domains, child)
    workflow = builder.add_edge(child, sizes, condition=requests_of(SizeQuestion)).add_edge(sizes, child).build()
    result = await workflow.run([Mail("a@known.org", 3), Mail("nowhere", 1), Mail("b@new.org", 30)])
    print(sorted(map(str, result.get_outputs())), result.get_final_state())
    print([(str(event), event.source_executor_id) for event in result.get_request_info_events()])
    result = await workflow.run(responses={"outside-new.org": False})
    print(result.get_outputs(), result.get_final_state(), len(parent.verdicts))

    agent = talker("nested", "nested")
    for start, direct in ((inner, False), (inner, True), (agent, False)):
        nested = WorkflowBuilder(start_executor=start).build()
        child = WorkflowExecutor(nested, id="child", allow_direct_output=direct)
        builder = WorkflowBuilder(start_executor=begin).add_edge(begin, child)
        workflow = builder.build() if direct else builder.add_edge(child, end).build()
        async for event in workflow.run("tides", stream=True):
            if event.type == "output":
                print(event.executor_id, event.data)
        print((await workflow.run("tides")).get_outputs())
