"""The web page on which operators watch and steer the queue."""
