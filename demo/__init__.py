"""`make demo`: one heavy tenant and several light ones, with and without Fairlane before the same simulated backend."""
