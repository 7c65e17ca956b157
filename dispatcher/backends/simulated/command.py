"""`fairlane sim-backend`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast, get_args

from pydantic import ValidationError

from dispatcher.backends.simulated.faults import FAULTS
from dispatcher.backends.simulated.options import Options, Priority
from dispatcher.backends.simulated.server import serve
from dispatcher.backends.timing import Speed
from fairlane.errors import InvalidRequest
from fairlane.process import check_port, loop_factory, outlive


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The command line."""

    host: str
    port: int
    models: tuple[str, ...]
    slots: int
    step_ms: float
    kv_tokens: int
    priority: str
    seed: int
    faults: str
    parent: int | None


def start(given: SimOptions) -> None:
    """Serves until SIGTERM or SIGINT. Raises InvalidRequest, PortInUse."""
    if given.priority not in get_args(Priority):
        raise InvalidRequest(f"--priority is one of {', '.join(get_args(Priority))}.")
    try:
        faults = FAULTS.validate_json(given.faults)
    except ValidationError as error:
        raise InvalidRequest(f"--faults: {error}") from error
    check_port(given.host, given.port)
    options = Options(
        models=given.models,
        speed=Speed(slots=given.slots, step_ms=given.step_ms, kv_tokens=given.kv_tokens),
        priority=cast(Priority, given.priority),
        seed=given.seed,
        faults=faults,
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(options, given))


async def _serve(options: Options, given: SimOptions) -> None:
    def ready(port: int) -> None:
        if given.port == 0:
            print(port, flush=True)  # noqa: T201 - which one it is
        elif given.parent is None:  # somebody typed it
            print(f"Serving {', '.join(given.models)} at http://{given.host}:{port}", flush=True)  # noqa: T201

    serving = asyncio.create_task(serve(options, given.host, given.port, ready))
    watch = asyncio.create_task(outlive(given.parent, serving.cancel))
    try:
        await serving
    except asyncio.CancelledError:
        pass
    finally:
        watch.cancel()
