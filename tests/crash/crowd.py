"""Several processes at work in one store, each with a thread of its own, of which any may be killed at any time."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from tests.crash import lives
from tests.crash.notes import read_story
from tests.crash.trials import MOST_KILLS, Tally, Trials
from tests.crash.zygote import Zygote

FLOWS = ["chain", "pruned", "fan-3", "function", "nested"]


class Crowd(TypedDict):
    place: str
    folder: str
    seed: int
    kills: int
    seconds: float
    """How long they are left alone between kills, at most."""


def live(order: Crowd, report_ready: Callable[[], object]) -> None:
    """Start them all, kill some, start these again, and wait for the end of all. Raises if one fails."""
    report_ready()
    chance = random.Random(order["seed"])
    running = {_start(order, flow): flow for flow in FLOWS}
    kills = order["kills"]
    while running:
        if kills > 0:
            time.sleep(chance.uniform(0, order["seconds"]))
            os.kill(chance.choice(list(running)), signal.SIGKILL)
        pid, status = os.waitpid(-1, 0)
        flow, ended = running.pop(pid), os.waitstatus_to_exitcode(status)
        if ended not in (0, -signal.SIGKILL):
            raise AssertionError((Path(order["folder"]) / f"failed-{flow}").read_text(encoding="utf-8"))
        if ended:
            kills -= 1
            running[_start(order, flow)] = flow


def _start(order: Crowd, flow: str) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        life_order = lives.Order(
            place=order["place"],
            folder=order["folder"],
            notes=f"notes-{flow}",
            flows=[flow],
            ready_when_working=False,
        )
        lives.live(life_order, lambda: None)
        code = 0
    except BaseException:  # noqa: BLE001  # the process that started this one reads the traceback
        (Path(order["folder"]) / f"failed-{flow}").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)


def run_crowds(zygote: Zygote, folder: Path, place: str, kills: int, seed: int) -> Tally:
    """As many crowds as it takes. Each thread is judged by itself."""
    judges = {}
    for flow in FLOWS:
        (folder / flow).mkdir()
        judges[flow] = Trials(zygote, folder / flow, place, [flow], seed)
    tally = Tally("five processes", place, seed)
    chance = random.Random(seed)
    while tally.kills < kills:
        crowd = lives.prepared(place, folder / f"crowd-{tally.kills}")
        order = Crowd(
            place=place,
            folder=str(crowd),
            seed=chance.randrange(2**32),
            kills=min(MOST_KILLS * len(FLOWS), kills - tally.kills),
            seconds=max(judge.seconds for judge in judges.values()) / 2,
        )
        zygote.life("tests.crash.crowd:live", order)
        for flow, judge in judges.items():
            story = read_story(crowd / f"notes-{flow}")
            tally.kills += story.lives - 1
            tally.problems += judge.judge(story)
    for judge in judges.values():
        tally.add(judge.tally)
    return tally
