"""On what was measured: the class of the machine, and nothing that tells whose it is."""

import os
import platform
import subprocess
import sys
import time

from scripts import bench_double


def machine(folder: str) -> dict[str, str | int]:
    """`folder` is where the measuring writes."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count() or 1,
        "cpu": _cpu(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
        "fileSystem": file_system(os.path.realpath(folder)),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "node": _node(),
    }


def told(machine: dict[str, str | int]) -> str:
    """In one line."""
    parts = [
        f"{machine['cores']} cores ({machine['cpu']})",
        f"{machine['memory']} of memory",
        f"{machine['fileSystem']}",
        f"{machine['system']}",
        f"Python {machine['python']}",
        f"Node {machine['node']}" if machine["node"] else "no Node",
    ]
    return ", ".join(parts)


def file_system(folder: str) -> str:
    """The kind of file system, since a sync means little on one that lives in memory."""
    try:
        with open("/proc/self/mounts", encoding="utf-8") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return "unknown"
    above = [
        (len(place), kind) for place, kind in mounts if os.path.join(folder, "").startswith(os.path.join(place, ""))
    ]
    return max(above)[1] if above else "unknown"


def _cpu() -> str:
    if sys.platform.startswith("linux"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return " ".join(line.partition(":")[2].replace("(R)", "").replace("(TM)", "").split())
    return platform.processor() or platform.machine()


def _node() -> str:
    try:
        done = subprocess.run([bench_double.NODE, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip().removeprefix("v")
