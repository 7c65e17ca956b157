"""An event's place in a stream, as it is written in its id."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidRequest
from fairlane.queue.streams import Position


def test_a_position_is_written_and_read_alike() -> None:
    assert Position.parse(str(Position(12, 345))) == (12, 345)
    for text in ("", "1", "1-", "-1", "0-1", "1-0", "a-b", "1-1-1", "01-1", f"1-{10**15}", "1 - 1"):
        with pytest.raises(InvalidRequest):
            Position.parse(text)
