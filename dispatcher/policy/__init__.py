"""The decisions of the dispatcher as pure functions: no I/O, no clock, no state of their own."""
