"""The simulator's engine model against a real vLLM: `python -m benchmarks.model --help`, `make bench-model`.

Each round fits a profile to the server (`fairlane profile`), then sends it a stream of requests of three tenants with
different lengths, open loop, at several shares of what the model says it can take; the model is then given the same
requests at the same times. Both sides of each figure come from the same minutes of the same server, since the speed of
a machine drifts. Without a URL it starts the vLLM in FAIRLANE_VLLM_DIR.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from benchmarks.noise import Noise
from benchmarks.vllm import installed, vllm
from dispatcher.backends import wire
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.profiling.asking import Answer, Asker
from dispatcher.simulator.profiling.checks import Check
from dispatcher.simulator.profiling.course import Course, Plan
from dispatcher.simulator.profiling.fit import fit
from dispatcher.simulator.request import Arrival, Request
from dispatcher.simulator.world import World, run

WITHIN: Final = 0.2
LOADS: Final = (0.5, 0.8, 1.2)
FLOOD: Final = 400  # requests at once, from which the capacity is computed
PROMPT: Final = 600  # tokens of the longest prompt of a profile: so many of them fill a step of 2,048
DOCS: Final = Path(__file__).parents[1] / "docs" / "profile.md"
MARKS: Final = re.compile(r"(<!-- validation -->\n).*?(<!-- end of validation -->)", re.DOTALL)


@dataclass(frozen=True)
class Tenant:
    """Its share of the requests, and the least and the most tokens of its prompts and answers."""

    name: str
    share: float
    prompt: tuple[int, int]
    answer: tuple[int, int]


TENANTS: Final = (
    Tenant("chat", 0.6, (30, 70), (12, 36)),
    Tenant("documents", 0.2, (120, 300), (6, 16)),
    Tenant("writer", 0.2, (25, 45), (40, 90)),
)


@dataclass(frozen=True)
class Outcome:
    """One request: what the caller saw, or what the model says. Times in ms."""

    tenant: str
    first_ms: float
    all_ms: float


@dataclass(frozen=True)
class Side:
    """One load, measured or modelled: its requests, and the tokens of their answers per second until the last one."""

    outcomes: Sequence[Outcome]
    tokens_per_s: float


@dataclass(frozen=True)
class Row:
    """One figure of both sides."""

    load: float
    tenant: str
    measure: str
    count: int
    measured: float
    model: float

    @property
    def ratio(self) -> float:
        return self.model / self.measured

    @property
    def holds(self) -> bool:
        return abs(self.ratio - 1) <= WITHIN

    def __str__(self) -> str:
        cells = [
            f"{self.load:g}",
            self.tenant,
            self.measure,
            f"{self.count}",
            f"{self.measured:,.0f}",
            f"{self.model:,.0f}",
        ]
        return "| " + " | ".join([*cells, f"{self.ratio:.2f}", "yes" if self.holds else "**no**"]) + " |"


class Direct:
    """Sends each request on when it arrives, as callers do who have no queue before their backend."""

    def begin(self, world: World) -> None:
        self._world = world

    def arrive(self, request: Request) -> None:
        self._world.send(request, self._world.backends[0])

    def ended(self, request: Request) -> None:
        pass

    async def act(self) -> None:
        pass


def workload(per_s: float, seconds: float, dice: random.Random) -> list[Arrival]:
    """Poisson arrivals of all tenants."""
    arrivals: list[Arrival] = []
    at_ms = 0.0
    while (at_ms := at_ms + 1000 * dice.expovariate(per_s)) < 1000 * seconds:
        (tenant,) = dice.choices(TENANTS, [one.share for one in TENANTS])
        arrivals.append(
            Arrival(at_ms, tenant.name, "default", dice.randint(*tenant.prompt), dice.randint(*tenant.answer))
        )
    return arrivals


async def capacity(profile: Profile) -> float:
    """Requests per second of this mix that the model can take: a flood of them."""
    mix = workload(FLOOD, 1.0, random.Random(0))
    flood = [Arrival(0.0, one.tenant, one.tier, one.prompt, one.answer) for one in mix]
    return 1000 * len(flood) / (await run(flood, Direct(), profile)).end_ms


async def measured(asker: Asker, arrivals: Sequence[Arrival]) -> list[Answer]:
    """Sends each one at its time, whether or not the others are answered."""
    prompts = [asker.prompt(one.prompt) for one in arrivals]
    began_ms = asker.now_ms()

    async def one(arrival: Arrival, prompt: str) -> Answer:
        await asyncio.sleep((began_ms + arrival.at_ms - asker.now_ms()) / 1000)
        return await asker.ask(prompt, arrival.answer)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(*each)) for each in zip(arrivals, prompts, strict=True)]
    return [task.result() for task in tasks]


async def both(asker: Asker, profile: Profile, arrivals: Sequence[Arrival]) -> tuple[Side, Side]:
    """The same requests measured, then modelled: sent when they were really sent, as long as they really were."""
    answers = await measured(asker, arrivals)
    began_ms = min(one.sent_ms for one in answers)
    pairs = sorted(zip(arrivals, answers, strict=True), key=lambda pair: pair[1].sent_ms)
    sent = [
        Arrival(answer.sent_ms - began_ms, one.tenant, one.tier, answer.prompt, answer.answer) for one, answer in pairs
    ]
    modelled = await run(sent, Direct(), profile)
    tokens = sum(one.answer for one in sent)
    real = [
        Outcome(one.tenant, answer.first_ms - answer.sent_ms, answer.last_ms - answer.sent_ms) for one, answer in pairs
    ]
    model = [
        Outcome(one.tenant, one.first_ms - one.arrived_ms, one.done_ms - one.arrived_ms) for one in modelled.requests
    ]
    real_ms = max(answer.last_ms for answer in answers) - began_ms
    return Side(real, 1000 * tokens / real_ms), Side(model, 1000 * tokens / modelled.end_ms)


def rows_of(load: float, pairs: Sequence[tuple[Side, Side]]) -> Iterator[Row]:
    """The figures of one load, over all rounds."""
    count = sum(len(real.outcomes) for real, _ in pairs)
    speeds = [fmean(side.tokens_per_s for side in sides) for sides in zip(*pairs, strict=True)]
    yield Row(load, "all", "tokens/s", count, *speeds)
    for tenant in TENANTS:
        for measure, value in (("first token", "first_ms"), ("whole answer", "all_ms")):
            sides = [
                sorted(
                    getattr(one, value) for pair in pairs for one in pair[side].outcomes if one.tenant == tenant.name
                )
                for side in (0, 1)
            ]
            for share in (0.5, 0.99):
                figures = [times[min(len(times) - 1, int(share * len(times)))] for times in sides]
                yield Row(load, tenant.name, f"{measure}, p{100 * share:g}, ms", len(sides[0]), *figures)


async def validate(url: str, given: argparse.Namespace) -> tuple[list[Row], list[str]]:
    """All rounds: the figures, and the profiles with what disturbed them, in words."""
    pairs: dict[float, list[tuple[Side, Side]]] = {load: [] for load in LOADS}
    words: list[str] = []
    plan = Plan(seconds=given.profile_seconds, most=2 * given.slots, prompt=PROMPT)
    async with wire.connect(True) as client:
        asker = Asker(client, url, given.model, {})
        for n in range(given.rounds):
            noise = Noise()
            found = fit(await Course(asker, {}, plan, lambda _: None).run(), given.model)
            speed, per_s = found.profile.speed, await capacity(found.profile)
            words.append(
                f"Round {n + 1}: step {speed.step_ms:.2f} ms + {speed.sequence_ms:.2f} a stream "
                f"+ {speed.prompt_token_ms:.3f} a prompt token + {speed.kv_token_ms:.5f} a token held; "
                f"{speed.slots} slots, {speed.step_tokens} tokens a step, overhead {found.profile.overhead_ms:.1f} ms; "
                f"so {per_s:.2f} requests/s at the most. Worst check {worst(found.checks)}. {noise}"
            )
            print(words[-1], *found.warnings, sep="\n  ", flush=True)
            for load in LOADS:
                noise = Noise()
                arrivals = workload(load * per_s, given.seconds, random.Random(f"{given.seed} {n} {load}"))
                pairs[load].append(await both(asker, found.profile, arrivals))
                words.append(f"Round {n + 1}, {load:g} of that: {len(arrivals)} requests. {noise}")
                print(words[-1], flush=True)
                if given.verbose:
                    print(*rows_of(load, pairs[load][-1:]), sep="\n", flush=True)
    return [row for load in LOADS for row in rows_of(load, pairs[load])], words


def worst(checks: Sequence[Check]) -> str:
    """What the profile explains worst."""
    found = max(checks, key=lambda one: abs(one.error))
    return f"{found.error:+.0%} ({found.what})"


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    head = "| load | tenant | figure | requests | measured | model | model ÷ measured | within 20 % |\n"
    lines = "\n".join(str(row) for row in rows)
    held = sum(row.holds for row in rows)
    off = median(abs(row.ratio - 1) for row in rows)
    told = f"{held} of {len(rows)} figures within 20 %; off by {off:.0%} in the median."
    return f"{head}|{' --- |' * 8}\n{lines}\n\n{told}\n"


def keep_apart() -> None:
    """The model's threads get the last core, all else the others, as beside a GPU: HTTP takes nothing from a step."""
    *others, last = sorted(os.sched_getaffinity(0))
    if others:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(last)
        os.sched_setaffinity(0, others)  # vLLM inherits it, but for its worker, which binds itself


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="of a running vLLM; nothing else may use it")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=45.0, help="of each load")
    parser.add_argument("--profile-seconds", type=float, default=45.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="each round's figures, too")
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOCS.name}")
    given = parser.parse_args()
    if not given.url and not installed():
        return
    keep_apart()
    with nullcontext(given.url) if given.url else vllm(given.slots) as url:
        rows, words = asyncio.run(validate(url, given))
    text = table(rows)
    print(f"\n{text}")
    if given.write:
        told = "\n".join(f"- {line}" for line in words)
        page = DOCS.read_text()
        DOCS.write_text(MARKS.sub(lambda marks: f"{marks[1]}\n{text}\n{told}\n\n{marks[2]}", page))
    raise SystemExit(0 if all(row.holds for row in rows) else 1)


if __name__ == "__main__":
    main()
