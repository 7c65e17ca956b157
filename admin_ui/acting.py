"""Acts: all that can be changed on the page, one class each, and the values that pass between them and the page.

views/acts.py serves every act at one URL: GET shows what it would do and asks, POST does it. So a token against forged
requests, the viewer's role and tenants, the typed name and the audit are looked after in one place, for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeVar

from admin_ui.access import Viewer
from admin_ui.bridge import Stores
from fairlane.accounts.users import UserRole
from fairlane.errors import FairlaneError, InvalidRequest


class OutcomeUnknown(FairlaneError):
    """Redis did not answer: this may have been done, in whole or in part. Look before you do it again."""

    code, status = "outcome_unknown", 503


Kind = Literal["text", "number", "select", "checkbox", "textarea", "password"]


@dataclass(frozen=True, slots=True)
class Field:
    """Something to fill in before an act. `choices` are a select's: value and label."""

    name: str
    label: str
    kind: Kind = "text"
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    help: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """An act that is asked for: its parameters, which name what it is about; what was filled in; and by whom."""

    params: Mapping[str, str]
    values: Mapping[str, str]
    viewer: Viewer

    def param(self, name: str) -> str:
        """A parameter that must be there. Raises InvalidRequest."""
        if not (value := self.params.get(name, "")):
            raise InvalidRequest(f"{name} is missing.", param=name)
        return value


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an act would do, as its confirmation shows it and the audit keeps it.

    `target` says in words what it is about; `tenant` whose that is (None: it concerns all, and is nothing for a viewer
    who may see only some tenants). `before` and `after` hold what changes. `tells` are sentences: what follows from it.
    `typed`: it destroys something, and this name must be typed. `back` is the address to return to.
    """

    title: str
    button: str
    target: str
    tenant: str | None
    back: str
    before: Mapping[str, object] = field(default_factory=dict[str, object])
    after: Mapping[str, object] = field(default_factory=dict[str, object])
    tells: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    typed: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What an act did, in a sentence. `to`: where to go now, if not back. `shown`: text that only this answer shows.

    `before` and `after` replace the proposal's in the audit, where only the act itself could know them.
    """

    words: str
    to: str | None = None
    shown: str | None = None
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None


class Act(ABC):
    """One act. Register it with `act`."""

    name: ClassVar[str]
    role: ClassVar[UserRole]
    scoped: ClassVar[bool]

    @abstractmethod
    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        """What it would do; only reads. Raises NotFound, InvalidRequest, IllegalTransition."""

    @abstractmethod
    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        """Does it. `proposal` was made a moment ago for the same `asked`. Raises what the stores raise."""


ACTS: Final[dict[str, Act]] = {}


def may(who: Viewer, act: Act) -> bool:
    """Whether somebody of this role, who sees these tenants, may do an act at all."""
    return who.may(act.role) and (act.scoped or who.tenants is None)


A = TypeVar("A", bound=Act)


def act(name: str, *, role: UserRole, scoped: bool = False) -> Callable[[type[A]], type[A]]:
    """Registers an act under a name of the form `thing.verb`, for viewers of this role and those above.

    `scoped`: also for those who see only some tenants, on what is theirs. Such a viewer may stop work and repeat it,
    but not change its place among others': weights, limits, moves, and pauses that somebody else made are not theirs.
    """

    def register(cls: type[A]) -> type[A]:
        if name in ACTS:
            raise ValueError(f"There are two acts {name!r}.")
        cls.name, cls.role, cls.scoped = name, role, scoped
        ACTS[name] = cls()
        return cls

    return register
