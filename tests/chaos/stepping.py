"""A process that carries rebalancing runs out, to be killed: `python -m tests.chaos.stepping URL`."""

from __future__ import annotations

import asyncio
import sys

from fairlane.queue.engine import Queue
from fairlane.rebalance import Stepper


async def main(url: str) -> None:
    queue = await Queue.open(url)
    await Stepper(queue).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
