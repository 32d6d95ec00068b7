"""Whether the tests of core notice when core is changed: `python scripts/mutation.py [MODULE ...]`.

Each mutant meets the tests of tests/core in a fork of its own, the quick ones first, until one of them fails. What
lives is told with its place and fails the run, unless tests/core/survivors.toml says why nothing can follow from it.
Chance is held still, so that two runs say the same.

Code within functions is put into the functions that are already there, and meets the tests that walk its line; for all
other code the module is loaded with the change in it.
"""

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import time
import tomllib
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import hypothesis.strategies
import pytest

from scripts.mutants import Mutant, mutants

ROOT = Path(__file__).parent.parent
CORE = ROOT / "subagent_cli" / "core"
TESTS = ROOT / "tests" / "core"
EXPLAINED = TESTS / "survivors.toml"
PACKAGE = "subagent_cli.core"

PATIENCE = 20.0
MEMORY = 4 << 30
EXAMPLES = 25
KILLED, SURVIVED, TIMED_OUT, UNTESTED = "killed", "survived", "timed out", "untested"
WORDS = (KILLED, TIMED_OUT, SURVIVED, UNTESTED)

_QUIET = ("-q", "--no-header", "--assert=plain", "--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider")
_WITHOUT = ("-p", "no:randomly", "-p", "no:xdist")

Test = tuple[Callable[..., object], Mapping[str, Any]]
Place = tuple[str, int]
Told = Callable[[object], None]
Verdicts = list[tuple[Mapping[str, Any], str]]


class Tests:
    """Collects the tests as pytest does, and hands them to whoever wants to run them in its own way."""

    def __init__(self, run: Callable[[list[Test]], None]) -> None:
        self._run = run

    def pytest_configure(self, config: pytest.Config) -> None:
        for marker in ("case(id, ...): not asked for here", "limit(seconds): not asked for here"):
            config.addinivalue_line("markers", marker)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = [item for item in session.items if isinstance(item, pytest.Function)]
        self._run([(item.obj, item.callspec.params if hasattr(item, "callspec") else {}) for item in items])
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="only these modules of core")
    chosen = parser.parse_args().modules or sorted(path.stem for path in CORE.glob("[a-z]*.py"))
    hypothesis.settings.register_profile(
        "mutation",
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=EXAMPLES,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutation")
    began = time.monotonic()
    loading = _loading()
    verdicts = [*_of_functions(chosen, loading), *_of_modules(chosen, loading)]
    return _told(chosen, verdicts, time.monotonic() - began)


def _of_functions(chosen: Sequence[str], loading: set[Place]) -> Verdicts:
    """All mutants within functions, judged by one process that has collected the tests once."""

    def judge(told: Told) -> None:
        _collect([TESTS], lambda tests: _judge_functions(chosen, loading, tests, told))

    return [(mutant, word) for mutant, word in _from_a_fork(judge)]


def _judge_functions(chosen: Sequence[str], loading: set[Place], tests: list[Test], told: Told) -> None:
    # Elsewhere, so that nothing here has been asked and remembered before a mutant comes.
    met: dict[Place, list[int]] = {}
    for module, line, numbers in _from_a_fork(partial(_walk, tests)):
        met[module, line] = numbers
    for module in chosen:
        live = sys.modules[f"{PACKAGE}.{module}"]
        # A line whose outcome is remembered is walked by the first test alone that wants it, though others rely on it.
        own = [number for number, (test, _) in enumerate(tests) if test.__module__.endswith(f"test_{module}")]
        for mutant in _mutants(module):
            if _is_loading(mutant, loading):
                continue
            meets = met.get((module, mutant.line)) or met.get((module, mutant.begins), [])
            steps = partial(_swap, mutant, live), partial(_run, tests, dict.fromkeys([*meets, *own]))
            told((_plain(mutant), _judged(*steps) if meets else UNTESTED))


def _of_modules(chosen: Sequence[str], loading: set[Place]) -> Verdicts:
    """All other mutants: each has the tests collected anew, those of its own module first."""
    verdicts: Verdicts = []
    for module in chosen:
        own = [path for path in (TESTS / f"test_{module}.py",) if path.exists()]
        others = sorted({*TESTS.glob("test_*.py")} - {*own})
        for mutant in _mutants(module):
            if _is_loading(mutant, loading):
                word = _judged(partial(_load, mutant), partial(_meet, own), partial(_meet, others))
                verdicts.append((_plain(mutant), word))
    return verdicts


def _is_loading(mutant: Mutant, loading: set[Place]) -> bool:
    return not mutant.function or (mutant.module, mutant.begins) in loading


def _loading() -> set[Place]:
    """The lines that run when core is loaded, those of functions too: what they have made then stays as it is."""

    def load(told: Told) -> None:
        measuring = coverage.Coverage(data_file=None, include=[f"{CORE}/*"], config_file=False)
        with measuring.collect():
            for path in CORE.glob("[a-z]*.py"):
                importlib.import_module(f"{PACKAGE}.{path.stem}")
        data = measuring.get_data()
        for path_ in data.measured_files():
            told([(Path(path_).stem, line) for line in data.lines(path_) or ()])

    return {(module, line) for lines in _from_a_fork(load) for module, line in lines}


def _from_a_fork(tell: Callable[[Told], None]) -> list[Any]:
    """What a process of its own has to tell. Nothing that it loads is there afterwards."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as told:
            tell(lambda what: print(json.dumps(what), file=told))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as telling:
        found = [json.loads(line) for line in telling]
    if os.waitpid(child, 0)[1]:
        raise SystemExit("mutation: the tests of core cannot be run")
    return found


def _mutants(module: str) -> Iterator[Mutant]:
    return mutants(module, (CORE / f"{module}.py").read_text())


def _plain(mutant: Mutant) -> Mapping[str, Any]:
    return {"module": mutant.module, "inside": mutant.inside, "line": mutant.line, "change": mutant.change}


def _judged(*steps: Callable[[], object]) -> str:
    """What becomes of a mutant that is tried out in a process of its own; whatever goes wrong there has killed it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            _fall_silent()
            for step in steps:
                step()
            code = 0
        os._exit(code)
    watched = os.pidfd_open(pid)
    try:
        if not select.select([watched], [], [], PATIENCE)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return TIMED_OUT
    finally:
        os.close(watched)
    return KILLED if os.waitpid(pid, 0)[1] else SURVIVED


def _fall_silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)


def _collect(paths: Sequence[Path], run: Callable[[list[Test]], None]) -> None:
    os.chdir(ROOT)
    code = pytest.main([*_QUIET, *_WITHOUT, *map(str, paths)], plugins=[Tests(run)])
    if code:
        raise RuntimeError(f"the tests could not be collected: {code}")


def _meet(paths: Sequence[Path]) -> None:
    def quick_first(tests: list[Test]) -> None:
        _run(tests, sorted(range(len(tests)), key=lambda number: hasattr(tests[number][0], "hypothesis")))

    if paths:
        _collect(paths, quick_first)


def _run(tests: list[Test], numbers: Iterable[int]) -> None:
    for number in numbers:
        test, arguments = tests[number]
        test(**arguments)


def _walk(tests: list[Test], told: Told) -> None:
    """Tells which tests walk which line, the quickest first."""
    measuring = coverage.Coverage(data_file=None, include=[f"{CORE}/*"], config_file=False)
    slow: dict[int, float] = {}
    measuring.start()
    for number, (test, arguments) in enumerate(tests):
        measuring.switch_context(str(number))
        began = time.perf_counter()
        test(**arguments)
        slow[number] = time.perf_counter() - began
    measuring.stop()
    data = measuring.get_data()
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            numbers = sorted((int(context) for context in contexts if context), key=slow.__getitem__)
            told((Path(path).stem, line, numbers))


def _swap(mutant: Mutant, module: types.ModuleType) -> None:
    """Puts the changed code into the function that everybody already knows."""
    code = compile(mutant.tree, f"{CORE}/{mutant.module}.py", "exec")
    holder: Any = module
    for name in mutant.function.split("."):
        code = next(part for part in code.co_consts if isinstance(part, types.CodeType) and part.co_name == name)
        holder = vars(holder)[name]
    function: Any = holder.fget if isinstance(holder, property) else holder
    function.__code__ = code


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module in its changed form."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self._name, self._path, self._tree = name, path, tree

    def find_spec(self, fullname: str, *_: object) -> Any:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._tree, str(self._path), "exec"), vars(module))


def _load(mutant: Mutant) -> None:
    name = f"{PACKAGE}.{mutant.module}"
    if name in sys.modules:
        raise SystemExit(f"mutation: {name} was loaded before it could be changed")
    sys.meta_path.insert(0, _Changed(name, CORE / f"{mutant.module}.py", mutant.tree))


def _told(chosen: Sequence[str], verdicts: Verdicts, seconds: float) -> int:
    """Prints what was seen, and gives the exit code."""
    counts: dict[str, Counter[str]] = {module: Counter() for module in chosen}
    reasons = _explained()
    alive = [mutant for mutant, word in verdicts if word in (SURVIVED, UNTESTED)]
    for mutant, word in verdicts:
        counts[mutant["module"]][word] += 1
    print(f"{'module':<12}{'mutants':>9}" + "".join(f"{word:>11}" for word in WORDS))
    for module, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        print(f"{module:<12}{count.total():>9}" + "".join(f"{count[word]:>11}" for word in WORDS))
    keys = [(mutant["module"], mutant["inside"], mutant["change"]) for mutant in alive]
    unexplained = [mutant for mutant, key in zip(alive, keys, strict=True) if key not in reasons]
    for mutant in unexplained:
        print(f"subagent_cli/core/{mutant['module']}.py:{mutant['line']} {mutant['inside']}: {mutant['change']}")
    stale = sorted(key for key in reasons if key[0] in counts and key not in keys)
    for key in stale:
        print(f"explained, and does not survive: {' '.join(key)}")
    explained = len(alive) - len(unexplained)
    print(f"{len(unexplained)} survive unexplained, {explained} explained, in {seconds:.0f} s")
    return 1 if unexplained or stale else 0


def _explained() -> set[tuple[str, str, str]]:
    rows = tomllib.loads(EXPLAINED.read_text())["explained"] if EXPLAINED.exists() else []
    return {(row["module"], row["inside"], change) for row in rows if row["reason"] for change in row["changes"]}


if __name__ == "__main__":
    sys.exit(main())
