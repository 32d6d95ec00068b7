"""The start of every call: `subagent`, and `python -m subagent_cli`.

A call lives for some milliseconds, so what it does not need is put off: collecting garbage, which would take every
seventh of them, is left to the system, and the modules that click imports for its rarer uses are loaded by the first
such use, which saves as much again.
"""

import gc
import sys
from types import ModuleType
from typing import Any, NoReturn


class _Late(ModuleType):
    """Stands in for a module until something in it is asked for, and is as good as the module from then on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loaded(), name)

    def loaded(self) -> ModuleType:
        from importlib import import_module

        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return module


def _put_off() -> None:
    inspect = _Late("inspect")

    def cleandoc(doc: str) -> Any:
        # Click calls it for the help of every option, and inspect need not be there to clean a line.
        return doc.lstrip() if doc.isprintable() else inspect.loaded().cleandoc(doc)

    vars(inspect)["cleandoc"] = cleandoc
    for module in (inspect, _Late("platform")):
        sys.modules.setdefault(module.__name__, module)


def start() -> NoReturn:
    gc.disable()
    _put_off()
    from subagent_cli.cli.main import main

    try:
        main()
    finally:
        # Else the interpreter looks through everything once more on its way out.
        gc.freeze()


if __name__ == "__main__":
    start()
