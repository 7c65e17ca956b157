"""A worker and the dispatcher that sweeps are killed while webhooks are sent: every event arrives all the same."""

from __future__ import annotations

from pathlib import Path

from benchmarks.webhooks import Plan, run

PLAN = Plan(
    events=150,
    per_s=60,
    endpoints=5,
    slow=0,
    flaky=0,  # a breaker that shuts takes its time
    dead=1,
    worker_dies=0.3,
    dispatcher_dies=0.6,
    redis_dies=float("inf"),
    lease_ms=1_000,
)
# The command as it is, but a lease ends soon: what a killed worker held is not waited for that long.
FAIRLANE = ("-c", "from dispatcher.webhooks import rules; rules.SLACK_S = 1.0; from fairlane.cli import main; main()")


async def test_whoever_is_killed_every_event_arrives(tmp_path: Path) -> None:
    found = await run(tmp_path, PLAN, fairlane=FAIRLANE)
    assert len(found.wanted) == PLAN.events * 4 // 5
    assert found.lost == set()
    assert all(receipt.verified for receipt in found.receipts)
