"""Where node is and whether what our checks need of it is installed.

Promise: `missing()` alone judges that, so no test can be left out on a machine that could run it.
"""

import os
import shutil

FOLDER = os.path.join(os.path.dirname(__file__), "node")
MODULES = os.path.join(FOLDER, "node_modules")


def missing() -> str:
    """What is not there, in a few words; empty when everything is."""
    if shutil.which("node") is None:
        return "no node"
    packages = (("zod",), ("typescript",), ("@types", "node"))
    if not all(os.path.isfile(os.path.join(MODULES, *package, "package.json")) for package in packages):
        return "no node modules"
    return ""


def script(name: str) -> list[str]:
    """The argv that runs one of our scripts."""
    return [shutil.which("node") or "node", os.path.join(FOLDER, name)]
