"""In which order a modelled engine serves those that wait, and who must go, by name.

`fcfs` and `priority` are vLLM's own; `sjf` and `srpt` know every answer's length; the others know none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dispatcher.backends.timing import ByPriority, Order
from dispatcher.simulator.orders.shortest import ByPrompt, ShortestFirst, ShortestRemaining
from dispatcher.simulator.orders.uniboost import UniBoost

ORDERS: Final[Mapping[str, Callable[[], Order]]] = {
    "fcfs": Order,
    "priority": ByPriority,
    "sjf": ShortestFirst,
    "srpt": ShortestRemaining,
    "sjf-prompt": ByPrompt,
    "uniboost": UniBoost,
    "uniboost-fixed": partial(UniBoost, adapts=False),
    "uniboost-unguarded": partial(UniBoost, guarded=False),
}
