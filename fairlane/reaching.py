"""Which queue a command means, and by which way: the front door, or the Redis behind it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Concatenate, Final, Literal, NoReturn, ParamSpec

import typer

from fairlane.terminal import OtherNamespace, RedisUrl, address, refusals, up_here

if TYPE_CHECKING:
    from producer.client.client import AsyncClient

P = ParamSpec("P")
Way = Literal["server", "redis"]

ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="FAIRLANE_SERVER",
        help="The front door, http(s)://… (Default: the `fairlane up` that runs here)",
    ),
]
ApiKey = Annotated[
    str | None, typer.Option(metavar="KEY", envvar="FAIRLANE_API_KEY", help="For the front door.", show_default=False)
]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Whose: over --redis, or with an operator's key.")]
_OPTIONS: Final = {
    "context": typer.Context,
    "server": ServerUrl,
    "redis": RedisUrl,
    "namespace": OtherNamespace,
    "api_key": ApiKey,
}


@dataclass(frozen=True, slots=True)
class Reach:
    """How the queue is reached. `typed` are the options by which the same queue is reached again."""

    url: str
    api_key: str | None = None
    namespace: str = "fl"
    typed: tuple[str, ...] = ()

    @property
    def by_http(self) -> bool:
        return self.url.startswith(("http://", "https://"))

    def client(self, retry_for_s: float = 0.0, *, tenant: str | None = None) -> AsyncClient:
        """A client, which is as patient as is said. `tenant` is whose it is, if that may be said."""
        from producer.client.client import AsyncClient

        return AsyncClient(self.url, self.api_key, tenant=tenant, namespace=self.namespace, retry_for_s=retry_for_s)

    async def models(self) -> list[str]:
        """Those that are served."""
        return await (self._models_of_server() if self.by_http else self._models_of_queue())

    async def _models_of_server(self) -> list[str]:
        from producer.client.door import Door

        door = Door(self.url, self.api_key)
        try:
            return [one["id"] for one in (await door.call("GET", "/v1/models"))["data"]]
        finally:
            await door.close()

    async def _models_of_queue(self) -> list[str]:
        from fairlane.queue.engine import Queue

        queue = await Queue.open(self.url, namespace=self.namespace)
        try:
            return await queue.pools.served()
        finally:
            await queue.close()

    def again(self, *words: str) -> str:
        """A command line about the same queue. It does not hold the key."""
        return shlex.join(["fairlane", *words, *self.typed])


def only(models: Sequence[str]) -> str:
    """The model, if there is only one. Raises InvalidRequest, which names those there are."""
    from fairlane.errors import InvalidRequest

    if len(models) == 1:
        return models[0]
    known = f"There are: {', '.join(models)}." if models else "There is none yet."
    raise InvalidRequest(f"Which model? Say --model NAME. {known}", param="model")


def reaching(
    first: Way, unless: str | None = None
) -> Callable[[Callable[Concatenate[Reach, P], None]], Callable[..., None]]:
    """A function whose first argument is a Reach becomes a command with the options that say which queue is meant.

    `first` is the way that is taken if `fairlane up` runs here and nothing else was said. With the option `unless` no
    queue is needed, and none is looked for. Refusals are told in words, or as JSON if the command's `as_json` is set.
    """

    def decorate(act: Callable[Concatenate[Reach, P], None]) -> Callable[..., None]:
        @wraps(act)
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            options = {name: kwargs.pop(name) for name in _OPTIONS}
            with refusals(bool(kwargs.get("as_json"))):
                alone = unless is not None and kwargs[unless] is not None
                to = Reach("") if alone else reach(first, **options)  # pyright: ignore[reportArgumentType]
                act(to, *args, **kwargs)

        own = list(signature(act, eval_str=True).parameters.values())[1:]
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)
            if name == "context"
            else Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in _OPTIONS.items()
        ]
        own = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
        at = next((n for n, one in enumerate(own) if one.name == "as_json"), len(own))
        whole = [*own[:at], *more, *own[at:]]
        vars(command)["__signature__"] = Signature(whole)
        command.__annotations__ = {one.name: one.annotation for one in whole}
        return command

    return decorate


def reach(
    first: Way,
    *,
    context: typer.Context,
    server: str | None,
    redis: str | None,
    namespace: str | None,
    api_key: str | None,
) -> Reach:
    """The way that was said on the command line, else in the environment, else the one to what runs here.

    Raises InvalidRequest, also for options that do not go together.
    """
    from fairlane.settings import load

    typed = {name for name in _OPTIONS if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    _check(typed)
    said = {"server": server, "redis": redis, "namespace": namespace}
    words = tuple(part for name, text in said.items() if name in typed for part in (f"--{name}", text or ""))
    if server and not typed & {"redis", "namespace"}:
        return Reach(server, api_key, typed=words)
    if "api_key" in typed and (first == "redis" or redis):
        _refuse("--api-key is for --server.", "api_key")
    settings = load(redis_url=redis, namespace=namespace)
    if first == "server" and settings.redis_url is None:
        if (url := up_here(settings.data_dir, "url")) is None:
            _refuse(
                f"Which queue? Use --server URL or --redis URL, or start `fairlane up`. (None runs in "
                f"{settings.data_dir}.)",
                "server",
            )
        if "namespace" not in typed:
            return Reach(url, api_key, typed=words)
    url, name = address(redis, namespace)
    return Reach(url, namespace=name, typed=words)


def _check(typed: set[str]) -> None:
    if "server" in typed:
        for name in sorted(typed & {"redis", "namespace"}):
            _refuse(f"--{name} does not go with --server.", name)


def _refuse(message: str, param: str) -> NoReturn:
    from fairlane.errors import InvalidRequest

    raise InvalidRequest(message, param=param)
