"""Moved: fairlane.strictjson."""

from fairlane.strictjson import MOST_DEPTH, dump, is_shallow, parse, parse_answer

__all__ = ["MOST_DEPTH", "dump", "is_shallow", "parse", "parse_answer"]
