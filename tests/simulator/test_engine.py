"""The engine model and the backend around it: strides are nothing but many steps at once, and the books are right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.backends.sequences import Order, Sequence
from dispatcher.backends.timing import Engine, Speed
from dispatcher.simulator import backend as backend_module
from dispatcher.simulator.backend import Backend, Page
from dispatcher.simulator.clock import Clock
from dispatcher.simulator.orders import ORDERS
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival, Request
from dispatcher.simulator.world import World, run

# Powers of two: sums of times are exact, in whatever order they are added up. No arrival is at the end of a step.
SPEED = Speed(4, 2_400, 64, 8.0, 0.25, 2**-5, 2**-10, 1)
OFF_GRID_MS = 2**-16

speeds = st.builds(
    lambda kv_tokens, block: replace(SPEED, kv_tokens=kv_tokens, block_tokens=block),
    st.sampled_from([420, 900, 2_400]),
    st.sampled_from([1, 16]),
)
orders = st.sampled_from(sorted(ORDERS))
# at which step or ms it comes, prompt, answer, priority: answers long enough for two thresholds, and short ones
loads = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.integers(1, 200),
        st.integers(1, 60) | st.sampled_from([255, 256, 257, 520]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=8,
)
Load = list[tuple[int, int, int, int]]


@dataclass
class Life:
    """Drives an engine, and writes down what becomes of each sequence."""

    engine: Engine
    sequences: list[Sequence]
    comes: list[int]
    now_ms: float = 0.0
    steps: int = 0
    finished: dict[int, tuple[int, float, int]] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None

    def live(self, stride: Callable[[], int]) -> None:
        """Strides of `stride()` steps at the most, none over the step in which somebody comes."""
        coming = sorted(range(len(self.sequences)), key=lambda n: self.comes[n])
        while coming or not self.engine.idle:
            while coming and (self.comes[coming[0]] <= self.steps or self.engine.idle):
                n = coming.pop(0)
                self.steps = max(self.steps, self.comes[n])
                self.engine.add(self.sequences[n])
            most = self.comes[coming[0]] - self.steps if coming else 10_000
            planned = self.engine.begin(most).steps
            self.check()
            self._end(min(planned, stride()))

    def _end(self, steps: int) -> None:
        self.engine.pass_by(steps // 2)
        step = self.engine.end(steps)
        self.steps += steps
        self.now_ms += step.ms
        for sequence in step.finished:
            n = next(n for n, one in enumerate(self.sequences) if one is sequence)
            self.finished[n] = (self.steps, self.now_ms, sequence.preempted)
            self.engine.order.ended(sequence, self.now_ms)


def born(load: Load, speed: Speed, order: str) -> Life:
    sequences = [
        Sequence(prompt, answer, priority=priority, arrived_ms=8.0 * at) for at, prompt, answer, priority in load
    ]
    return Life(Engine(speed, ORDERS[order]()), sequences, [at for at, *_ in load])


@settings(max_examples=25, deadline=None)
@given(loads, speeds, orders, st.lists(st.integers(1, 400), min_size=1))
def test_strides_are_the_same_life_as_single_steps(load: Load, speed: Speed, order: str, cuts: list[int]) -> None:
    whole, cut, single = (born(load, speed, order) for _ in range(3))
    whole.live(lambda: 1_000_000)
    cut.live(lambda: cuts[cut.steps % len(cuts)])
    single.live(lambda: 1)
    books = [
        (one.finished, one.engine.preemptions, one.engine.wasted_tokens, one.engine.prompt_tokens)
        for one in (whole, cut, single)
    ]
    assert books[0] == books[1] == books[2]


@settings(max_examples=25, deadline=None)
@given(loads, speeds, orders)
def test_nobody_is_lost_and_whatever_was_computed_was_used_or_wasted(load: Load, speed: Speed, order: str) -> None:
    life = born(load, speed, order)
    life.live(lambda: 1_000_000)
    engine = life.engine
    assert sorted(life.finished) == list(range(len(load)))
    assert [one.made for one in life.sequences] == [answer for _, _, answer, _ in load]
    assert (engine.held, engine.waiting, engine.running) == (0, [], [])
    assert engine.preemptions == sum(one.preempted for one in life.sequences)
    assert engine.answer_tokens == sum(answer for _, _, answer, _ in load)
    used = sum(prompt + answer for _, prompt, answer, _ in load)
    assert engine.prompt_tokens + engine.answer_tokens == used + engine.wasted_tokens


@settings(max_examples=25, deadline=None)
@given(loads, speeds, st.sampled_from(["srpt", "uniboost", "uniboost-unguarded"]))
def test_a_place_is_taken_only_by_one_that_comes_before_and_gets_it(load: Load, speed: Speed, order: str) -> None:
    life = born(load, speed, order)
    engine, ran = life.engine, list[Sequence]()
    preempted = dict.fromkeys(life.sequences, 0)
    blocks = speed.kv_tokens // speed.block_tokens

    def in_blocks(sequences: list[Sequence]) -> int:
        return sum(-(-(one.need + 1) // speed.block_tokens) for one in sequences)

    def check() -> None:
        evicted = [one for one in life.sequences if one.preempted > preempted[one]]
        started = [one for one in engine.running if one not in ran]
        assert len(engine.running) == 1 or in_blocks(engine.running) <= blocks
        if started:  # else the cache overflowed
            for one in evicted:
                assert min(engine.order.key(other) for other in started) < engine.order.key(one)
                assert len(engine.running) == speed.slots or in_blocks([*engine.running, one]) > blocks
        preempted.update({one: one.preempted for one in life.sequences})
        ran[:] = engine.running

    life.check = check
    life.live(lambda: 1)


def test_a_large_one_that_makes_room_enough_spares_the_small_ones_after_it() -> None:
    engine = Engine(Speed(slots=8, kv_tokens=1_000, step_tokens=10_000), ORDERS["srpt"]())
    large, small, first = Sequence(700, 100), Sequence(100, 190), Sequence(600, 10)
    for one in (large, small):
        engine.add(one)
    engine.step()
    engine.add(first)
    engine.step()
    assert (large.preempted, small.preempted, first.made) == (1, 0, 1)


def test_nobody_is_evicted_for_one_that_would_not_fit_all_the_same() -> None:
    engine = Engine(Speed(slots=8, kv_tokens=1_000, step_tokens=10_000), ORDERS["srpt"]())
    short, long = Sequence(500, 5), Sequence(100, 300)
    for one in (short, long):
        engine.add(one)
    engine.step()
    engine.add(Sequence(600, 10))  # comes before the long one, after the short one
    engine.step()
    assert (short.made, long.made, engine.preemptions) == (2, 2, 0)


# --- the backend ------------------------------------------------------------------------------------------------------


class Looking:
    """Sends to the first backend, moves somebody at given times, and writes down what a look shows."""

    def __init__(self, looks: list[int], moves: list[tuple[int, int]]) -> None:
        self._looks, self._moves = looks, moves
        self.seen: list[tuple[Page, float, int, list[tuple[int, int]]]] = []

    def begin(self, world: World) -> None:
        self._world, self._live = world, dict[int, Request]()
        for ms in self._looks:
            world.clock.at(ms + OFF_GRID_MS, self._look)
        for ms, n in self._moves:
            world.clock.at(ms + OFF_GRID_MS, lambda n=n: self._move(n))

    def arrive(self, request: Request) -> None:
        self._live[request.number] = request
        self._world.send(request, self._world.backends[0])

    def ended(self, request: Request) -> None:
        del self._live[request.number]

    async def act(self) -> None: ...

    def _look(self) -> None:
        for one in self._world.backends:
            made = [(request.number, made) for request, made in one.made()]
            self.seen.append((one.page(), one.kv, one.kv_needed, made))

    def _move(self, n: int) -> None:
        if request := self._live.get(n):
            source, target = self._world.backends
            if request.backend == target.name:
                source, target = target, source
            source.take(request)
            self._world.send(request, target)


@settings(max_examples=20, deadline=None)
@given(
    loads,
    speeds,
    orders,
    st.lists(st.integers(0, 5_000), max_size=5),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 7)), max_size=5),
)
def test_what_comes_leaves_or_is_looked_at_in_mid_stride_finds_the_engine_as_if_it_stepped(
    load: Load, speed: Speed, order: str, looks: list[int], moves: list[tuple[int, int]]
) -> None:
    arrivals = [
        Arrival(8.0 * at + n * OFF_GRID_MS / 16 + OFF_GRID_MS / 64, "t", "default", prompt, answer)
        for n, (at, prompt, answer, _) in enumerate(load)
    ]

    def lived(most_steps: int) -> object:
        scheduler = Looking(looks, moves)
        with patch.object(backend_module, "MOST_STEPS", most_steps):
            outcome = _run(arrivals, scheduler, Profile("p", speed, 0.5), ORDERS[order])
        requests = [(one.sent_ms, one.first_ms, one.done_ms, one.preempted, one.backend) for one in outcome.requests]
        return scheduler.seen, requests, outcome.backends, outcome.end_ms

    assert lived(1_000_000) == lived(1)


def _run(arrivals: list[Arrival], scheduler: Looking, profile: Profile, order: Callable[[], Order]):
    return asyncio.run(run(arrivals, scheduler, profile, backends=2, order=order))


@pytest.mark.parametrize("block", [1, 16])
def test_who_has_a_place_runs_from_the_next_step_on_and_who_has_none_does_not(block: int) -> None:
    def sent(prompts: list[int], slots: int) -> tuple[bool, bool]:
        clock = Clock()
        one = Backend("b", clock, Profile("p", Speed(slots, 640, 2_000, block_tokens=block)))
        requests = [Request(prompt, 50, number=n, tenant="t", tier="default") for n, prompt in enumerate(prompts)]
        for request in requests[:-1]:
            one.send(request, lambda _: None)
        clock.run(100.0)  # ten steps or so
        had = one.has_place(requests[-1])
        one.send(requests[-1], lambda _: None)
        clock.run(clock.now)  # it comes
        clock.run(clock.next_ms)  # the step ends and the next one begins
        return had, one.waiting == 0

    outcomes = [sent([200, 100, prompt], slots) for prompt in range(280, 340) for slots in (2, 3)]
    assert all(had == runs for had, runs in outcomes)
    assert {had for had, _ in outcomes} == {True, False}
