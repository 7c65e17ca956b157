"""What an extra brings is all that its parts import: nothing works only because a developer has more installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Run in a process of its own, in which only what the extra brings can be imported.
PROGRAM = """
import sys, tomllib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
brought, todo = {"fairlane"}, [*project["dependencies"], *extras[sys.argv[1]]]
while todo:
    wanted = Requirement(todo.pop())
    name = canonicalize_name(wanted.name)
    new = {f"{name}[{extra}]" for extra in wanted.extras} | {name}
    if new <= brought or wanted.marker and not wanted.marker.evaluate():
        continue
    brought |= new
    if name == "fairlane":
        todo += [line for extra in wanted.extras for line in extras[extra]]
        continue
    try:
        lines = map(Requirement, requires(name) or ())
    except PackageNotFoundError:
        continue
    for line in lines:
        if not line.marker or any(line.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
            line.marker = None
            todo.append(str(line))

foreign = {top for top, names in packages_distributions().items() if not brought & set(map(canonicalize_name, names))}

class OnlyBrought:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in foreign:
            raise ModuleNotFoundError(f"{sys.argv[1]} does not bring {name}", name=name)

for name in [one for one in sys.modules if one.partition(".")[0] in foreign | {"packaging"}]:
    del sys.modules[name]
sys.meta_path.insert(0, OnlyBrought())
for name in sys.argv[2:]:
    import_module(name)
"""


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("client", ["fairlane", "producer.client", "producer.client.direct", "producer.client.http"]),
        ("server", ["dispatcher.service", "dispatcher.celery_worker", "kombu.transport.redis", "producer.api.app"]),
    ],
)
def test_an_extra_brings_all_that_its_parts_import(extra: str, modules: list[str]) -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM, extra, *modules], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
