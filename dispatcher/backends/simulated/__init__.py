"""A simulated inference server: seen from outside it behaves as vLLM does (docs/sim-backend.md)."""

from dispatcher.backends.simulated.app import create_app
from dispatcher.backends.simulated.faults import Faults
from dispatcher.backends.simulated.options import Options
from dispatcher.backends.simulated.server import serve

__all__ = ["Faults", "Options", "create_app", "serve"]
