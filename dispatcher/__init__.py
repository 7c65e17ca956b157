"""Takes jobs out of the queue and runs them on the backends."""
