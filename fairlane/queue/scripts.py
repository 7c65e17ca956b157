"""The scripts: one file per atomic act in lua/, put together with the parts it includes from lua/lib/, run by SHA.

A script's source is: the states its acts may start from (model.TRANSITIONS), the fields of the pool's hash that it
uses, what it uses of the parts named in its `-- include:` lines, and the file itself, with each key's name written out
(keys.py). Old and new versions of a script
run side by side during an upgrade, since each process runs its own by its SHA.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, TypeAlias, cast

from redis.exceptions import NoScriptError

from fairlane.model import TRANSITIONS, Act
from fairlane.queue import keys
from fairlane.queue.commands import Commands

# What the scripts return, as redis-py hands it out.
Reply: TypeAlias = "bytes | int | list[Reply] | None"

_INCLUDE: Final = re.compile(r"^-- include: (.+)$", re.MULTILINE)
_TOP: Final = re.compile(r"^(?=\S)(?!end\b|elseif\b|else\b|\}|\))", re.MULTILINE)  # starts of top-level statements
_DEFINES: Final = re.compile(r"local (?:function )?(\w+(?:, \w+)*)")
_FROM: Final = re.compile(r"\bFROM\.(\w+)\b")
_POOL: Final = re.compile(r"\bpool\.(\w+)\b")
_LUA: Final = files("fairlane.queue") / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """One act: its whole source, and the SHA that Redis knows it by."""

    name: str
    source: str
    sha: str

    async def run(self, client: Commands, prefix: str, *args: str | bytes) -> Reply:
        """Runs the script on the slot of `prefix`. A server that lost it (failover, SCRIPT FLUSH) gets it again."""
        try:
            return cast(Reply, await client.evalsha(self.sha, 1, prefix, *args))
        except NoScriptError:
            return cast(Reply, await client.eval(self.source, 1, prefix, *args))


@cache
def script(name: str) -> Script:
    """The script of `lua/<name>.lua`."""
    body = _needed(_parts(name))
    source = keys.in_lua("\n".join([_legal_states(body), _pool_fields(body), body]))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def names() -> list[str]:
    """All acts that there is a script for."""
    return sorted(entry.name.removesuffix(".lua") for entry in _LUA.iterdir() if entry.name.endswith(".lua"))


def _parts(name: str) -> dict[str, str]:
    """The file and everything it includes, each part once, what a part needs before the part; the file comes last."""
    done: dict[str, str] = {}

    def add(part: str, text: str) -> None:
        for line in _INCLUDE.findall(text):
            for needed in line.split():
                if needed not in done:
                    add(needed, (_LUA / "lib" / f"{needed}.lua").read_text())
        # Without comments and blank lines: Redis keeps every source in memory.
        lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))
        done[part] = "\n".join(lines) + "\n"

    add("", (_LUA / f"{name}.lua").read_text())
    return done


def _needed(parts: dict[str, str]) -> str:
    """The parts in one text, without the functions and constants that nothing in it uses: each would cost every run."""
    main = parts.pop("")
    chunks = [chunk for part in parts.values() for chunk in _TOP.split(part) if chunk]
    kept: list[str] = []
    used = main
    for chunk in reversed(chunks):
        match = _DEFINES.match(chunk)
        if match is None or any(re.search(rf"\b{name.strip()}\b", used) for name in match[1].split(",")):
            kept.append(chunk)
            used += chunk
    return "".join([*reversed(kept), main])


def _legal_states(source: str) -> str:
    """Lua tables of the states that the acts named as `FROM.<act>` in `source` may start from."""
    acts = sorted(set(_FROM.findall(source)))
    if not acts:
        return ""
    tables = (f"{act} = {{{', '.join(f'{s} = true' for s in TRANSITIONS[cast(Act, act)] if s)}}}" for act in acts)
    return f"local FROM = {{{', '.join(tables)}}}"


def _pool_fields(source: str) -> str:
    """The Lua table `pool` with the fields of the pool's hash that `source` uses: false if absent, read in one call."""
    fields = sorted(set(_POOL.findall(source)))
    if not fields:
        return ""
    names = ", ".join(f"'{field}'" for field in fields)
    table = ", ".join(f"{field} = h[{n}]" for n, field in enumerate(fields, 1))
    return f"local h = redis.call('HMGET', pool_key, {names})\nlocal pool = {{{table}}}"
