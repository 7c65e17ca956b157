"""What we measure, each figure beside a yardstick from the same run: `python -m benchmarks.queue`."""
