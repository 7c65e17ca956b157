"""Puts jobs in and hands results out: the Python client and the HTTP front door."""
