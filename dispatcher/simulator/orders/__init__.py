"""In which order a modelled engine serves those that wait, and who must go, by name.

`fcfs` and `priority` are vLLM's own; `sjf` and `srpt` know every answer's length; the others know none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dispatcher.backends.sequences import ByPriority, Order
from dispatcher.simulator.orders.shortest import ByPrompt, ShortestFirst, ShortestRemaining
from dispatcher.simulator.orders.uniboost import UniBoost

# Per second: about 2(1 - ρ)/(ρ·E[S]·(1 + cv²)) for requests that take some seconds. Published are 1 to 200.
LOW_GAMMA: Final = 0.1

ORDERS: Final[Mapping[str, Callable[[], Order]]] = {
    "fcfs": Order,
    "priority": ByPriority,
    "sjf": ShortestFirst,
    "srpt": ShortestRemaining,
    "sjf-prompt": ByPrompt,
    "uniboost": UniBoost,
    "uniboost-fixed": partial(UniBoost, adapts=False),
    "uniboost-low": partial(UniBoost, adapts=False, gamma=LOW_GAMMA),
    "uniboost-unguarded": partial(UniBoost, guarded=False),
}
