"""The start of every call: `subagent`, and `python -m subagent_cli`.

A call lives for some milliseconds, of which collecting garbage would take every seventh: it is left to the system.
"""

import gc
from typing import NoReturn


def start() -> NoReturn:
    gc.disable()
    from subagent_cli.cli.main import main

    try:
        main()
    finally:
        # Else the interpreter looks through everything once more on its way out.
        gc.freeze()


if __name__ == "__main__":
    start()
