"""Sending webhooks: fan-out of outcomes, the courier, and the guard between it and the inside network."""
