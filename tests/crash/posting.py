"""Messages sent to a running thread by a process that is killed while it sends."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never, TypedDict

from tests.crash import notes
from tests.crash.lives import PLACES, prepared
from tests.crash.trials import MOST_KILLS, Tally
from tests.crash.zygote import Zygote

from perdure import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler

LETTERS = [f"letter-{number}" for number in range(8)]


class Letterbox(Executor):
    @handler
    async def take(self, letter: str, ctx: WorkflowContext[Never, str]) -> None:
        await notes.work(letter)
        ctx.state.setdefault("letters", []).append(letter)


def letterbox(storage: Any) -> Workflow:
    return WorkflowBuilder(name="letterbox", start_executor=Letterbox("box"), checkpoint_storage=storage).build()


class Posting(TypedDict):
    place: str
    folder: str
    letters: list[str]


def live(order: Posting, report_ready: Callable[[], object]) -> None:
    written = notes.begin_notes(Path(order["folder"]) / "notes")
    written.put("life")
    asyncio.run(_live(order, written, report_ready))


async def _live(order: Posting, written: notes.Notes, report_ready: Callable[[], object]) -> None:
    storage = PLACES[order["place"]](Path(order["folder"]))
    report_ready()
    async with letterbox(storage).open(thread_id="letterbox") as run:
        for letter in order["letters"]:
            written.put("sending", letter)
            await run.send(letter)
            written.put("sent", letter)
        await run.resume()  # what came in before, should nothing be left to send
        await run.wait()
    head = await storage.get_latest(thread_id="letterbox")
    assert head is not None
    written.put("letters", *head.state["letters"])
    await storage.close()


class PostTrials:
    def __init__(self, zygote: Zygote, folder: Path, place: str, seed: int) -> None:
        self.tally = Tally("messages sent", place, seed)
        self._zygote = zygote
        self._folder = folder
        self._place = place
        self._chance = random.Random(seed)
        self._seconds = self._life("calm").seconds

    def _life(self, trial: str, kill_after: float | None = None) -> Any:
        folder = prepared(self._place, self._folder / trial)
        sent = {words[1] for words in _lines(folder) if words[0] == "sent"}
        left = [letter for letter in LETTERS if letter not in sent]
        order: Posting = {"place": self._place, "folder": str(folder), "letters": left}
        return self._zygote.life("tests.crash.posting:live", order, kill_after)

    def run(self, kills: int) -> Tally:
        trial = 0
        while self.tally.kills < kills:
            trial += 1
            killed = 0
            while killed < MOST_KILLS and self.tally.kills < kills:
                ended = self._life(f"trial-{trial}", self._chance.uniform(0, self._seconds))
                if not ended.was_killed:
                    break
                killed += 1
                self.tally.kills += 1
            else:
                self._life(f"trial-{trial}")
            self._judge(f"trial-{trial}")
        return self.tally

    def _judge(self, trial: str) -> None:
        lines = _lines(self._folder / trial)
        tried = Counter(words[1] for words in lines if words[0] == "sending")
        [*_, got] = [words[1:] for words in lines if words[0] == "letters"]
        lost = [letter for letter in LETTERS if letter not in got]
        # One whose sending was cut short was sent again: it may have arrived both times.
        repeated = [letter for letter, count in Counter(got).items() if count > tried[letter]]
        in_order = sorted(set(got), key=got.index) == LETTERS
        self.tally.lost += len(lost)
        self.tally.recorded_repeated += len(repeated)
        self.tally.unrecorded_repeated += len(got) - len(set(got)) - len(repeated)
        self.tally.in_flight += tried.total() - len(LETTERS)
        if lost or repeated or not in_order:
            self.tally.problems.append(f"{trial}: sent {dict(tried)}, and got {got}")


def _lines(folder: Path) -> list[list[str]]:
    path = folder / "notes"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
