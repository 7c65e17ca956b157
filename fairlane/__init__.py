"""Fairlane: a fair, tiered request queue for LLM inference servers, on Redis."""
