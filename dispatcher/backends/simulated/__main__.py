"""`python -m dispatcher.backends.simulated`: a simulated backend without Fairlane's command line."""

from __future__ import annotations

import argparse
import asyncio
from typing import get_args

try:
    from uvloop import new_event_loop
except ImportError:  # there is none for Windows
    from asyncio import new_event_loop

from dispatcher.backends.simulated.faults import FAULTS
from dispatcher.backends.simulated.options import Options, Priority
from dispatcher.backends.simulated.server import serve
from dispatcher.backends.timing import Speed


def main() -> None:
    given = _parser().parse_args()
    speed = Speed(
        slots=given.slots,
        kv_tokens=given.kv_tokens,
        step_tokens=given.step_tokens,
        step_ms=given.step_ms,
        sequence_ms=given.sequence_ms,
        prompt_token_ms=given.prompt_token_ms,
    )
    options = Options(
        models=tuple(given.model or ["sim"]),
        speed=speed,
        max_model_len=given.max_model_len,
        mean_answer=given.mean_answer,
        priority=given.priority,
        seed=given.seed,
        faults=FAULTS.validate_json(given.faults),
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(options, given.host, given.port, lambda port: print(port, flush=True)))  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dispatcher.backends.simulated", description=__doc__)
    speed, options = Speed(), Options()
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: a free one. The port is printed when the server listens.")
    add("--model", action="append", help="A name that is served; repeatable, the first one is in the metrics.")
    add("--slots", type=int, default=speed.slots)
    add("--kv-tokens", type=int, default=speed.kv_tokens)
    add("--step-tokens", type=int, default=speed.step_tokens)
    add("--step-ms", type=float, default=speed.step_ms)
    add("--sequence-ms", type=float, default=speed.sequence_ms)
    add("--prompt-token-ms", type=float, default=speed.prompt_token_ms)
    add("--max-model-len", type=int, default=options.max_model_len)
    add("--mean-answer", type=float, default=options.mean_answer)
    add("--priority", choices=get_args(Priority), default=options.priority)
    add("--seed", type=int, default=options.seed)
    add("--faults", default="{}", metavar="JSON", help="As in POST /faults.")
    return parser


if __name__ == "__main__":
    main()
