"""The Redis that a run has to itself: a private server without persistence, and a client that waits for its answers.

A simulation does one thing at a time. To block on each answer takes a fraction of the time that an event loop needs for
it, and nothing can come between: the same seed gives the same run.
"""

from __future__ import annotations

import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import hiredis
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from fairlane.queue.connection import Client
from fairlane.queue.launch import find_binary, free_ports, start_server

READ_BYTES: Final = 65_536
NO_SCRIPT: Final = "NOSCRIPT "


@contextmanager
def private_store() -> Generator[Client]:
    """A server of our own in an empty temporary folder, and a client for it.

    Raises StoreUnsuitable if there is no server program on this machine, StoreUnavailable if it does not start.
    """
    with TemporaryDirectory(prefix="fairlane-simulate-") as folder:
        path = Path(folder) / "socket"
        command = [find_binary(), "--bind", "127.0.0.1", "--save", "", "--unixsocket", str(path)]
        running = start_server(
            lambda port: [*command, "--port", str(port)], free_ports(), log=Path(folder) / "server.log"
        )
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(path))
                yield BlockingRedis(Wire(connection))
        finally:
            running.process.stop()


class Wire:
    """One connection: sends commands, and waits for what is answered."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = hiredis.Reader(replyError=_refusal)

    def ask(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers in order, an error among them as a value. Raises ConnectionError if the server is gone."""
        packed: list[bytes] = [hiredis.pack_command(tuple(command)) for command in commands]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportArgumentType]
        self._connection.sendall(b"".join(packed))
        return [self._answer() for _ in commands]

    def _answer(self) -> Any:
        while (answer := self._reader.gets()) is False:
            received = self._connection.recv(READ_BYTES)
            if not received:
                raise ConnectionError("The server of this simulation is gone.")
            self._reader.feed(received)
        return answer


class BlockingRedis(Redis):
    """redis-py's client with another way to the server: a command has been answered when its coroutine returns."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(protocol=2)  # pyright: ignore[reportUnknownMemberType]
        self._wire = wire

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        (answer,) = self._wire.ask([args])
        if isinstance(answer, Exception):
            raise answer
        return _shaped(self.response_callbacks, args, options, answer)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return _BlockingPipeline(self._wire, self.response_callbacks, transaction)


class _BlockingPipeline(Pipeline):
    def __init__(self, wire: Wire, response_callbacks: Any, transaction: bool) -> None:
        super().__init__(cast("Any", None), response_callbacks, transaction, None)
        self._wire = wire

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, self.command_stack = self.command_stack, []
        commands = [args for args, _ in stack]
        if self.is_transaction:
            *_, answers = self._wire.ask([("MULTI",), *commands, ("EXEC",)])
        else:
            answers = self._wire.ask(commands)
        for answer in answers:
            if isinstance(answer, Exception) and raise_on_error:
                raise answer
        return [_shaped(self.response_callbacks, *one, answer) for one, answer in zip(stack, answers, strict=True)]


def _shaped(callbacks: Any, args: Sequence[Any], options: Mapping[str, Any], answer: Any) -> Any:
    """As redis-py hands it out."""
    callback = callbacks.get(args[0])
    given = {name: value for name, value in options.items() if name != "keys"}
    return callback(answer, **given) if callback and not isinstance(answer, Exception) else answer


def _refusal(words: str) -> ResponseError:
    return NoScriptError(words) if words.startswith(NO_SCRIPT) else ResponseError(words)
