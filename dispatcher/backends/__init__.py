"""Inference servers: how long they take (timing)."""
