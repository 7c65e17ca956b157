"""What `fairlane up` says: its commands work as they are printed, from another terminal too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairlane.greeting import Running, greeting

HERE = Running("http://u", "redis://r", ("llama",), "http://a", "http://a/login/once?secret=s")


def test_with_the_default_data_dir_the_command_is_short() -> None:
    assert "(`fairlane users login up` makes another)" in greeting(HERE)


def test_with_another_data_dir_the_commands_name_it() -> None:
    there = replace(HERE, data_dir=Path("/srv/my data"), auth="keys")
    words = greeting(there)
    assert "`FAIRLANE_DATA_DIR='/srv/my data' fairlane users login up`" in words
    assert "`FAIRLANE_DATA_DIR='/srv/my data' fairlane keys create ann`" in words
