"""A session of pytest that runs mutants in the place of tests."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from mutation.live import Functions
from mutation.operators import Mutant, mutants
from mutation.recording import Record, Recorder
from mutation.report import Outcome

# how many mutants of each part are drawn, and the tests for what no recorded test calls; a mutant belongs to the part
# with the longest name. Compiled loops are a part of their own: each mutant is compiled anew.
PACKAGES: dict[str, tuple[int, tuple[str, ...]]] = {
    "noiseproof/methods": (150, ("tests/methods", "tests/test_contract.py")),
    "noiseproof/pretraining": (30, ("tests/pretraining", "tests/training/test_replicas.py")),
    "noiseproof/auditing": (80, ("tests/auditing", "tests/training/test_audit.py", "tests/training/test_run_audit.py")),
    "noiseproof/coreset": (40, ("tests/coreset",)),
    "noiseproof/coreset/kernels.py": (4, ("tests/coreset",)),
}
TESTS = (
    "tests/methods", "tests/auditing", "tests/coreset", "tests/pretraining", "tests/test_contract.py",
    "tests/test_doors.py", "tests/training/test_replicas.py", "tests/training/test_audit.py",
    "tests/training/test_run_audit.py",
)  # fmt: skip
GIBIBYTE = 2**30
ORIGINAL = ".original"  # ends the name of a file while a mutant has its place
BROKEN, KILLED, ELSEWHERE = 1, 10, 11  # exit codes of a forked process


def package_of(module: str) -> str:
    """The part of `PACKAGES` that a module belongs to; "" where it belongs to none."""
    return max((name for name in PACKAGES if module.startswith(name)), key=len, default="")


def arguments(out: Path) -> list[str]:
    """Of pytest: no slow tests, nothing on the terminal, files in a folder of the run's own."""
    quiet = ["-o", "addopts=--strict-markers", "-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return [*quiet, "-m", "not slow", f"--basetemp={out / 'tmp'}"]


def fork(work: Callable[[], None], log: Path, seconds: float) -> int | None:
    """The exit code of a process of its own that does the work, its output in a file; None: out of time.

    Time is the processor's, which others may use too; twenty times as much may pass.
    """
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            os.setpgid(0, 0)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
            resource.setrlimit(resource.RLIMIT_AS, (24 * GIBIBYTE, 24 * GIBIBYTE))
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    ended, status, deadline = 0, 0, time.monotonic() + 20 * seconds
    while not ended and time.monotonic() < deadline:
        time.sleep(0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and the processes it may have begun
    if not ended:
        os.waitpid(child, 0)
        return None
    code = os.waitstatus_to_exitcode(status)
    return None if code == -signal.SIGXCPU else code


def run(items: list[pytest.Item]) -> None:
    """Run tests one after the other, as pytest's own loop does."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class FirstFailure:
    """A plugin of pytest that writes down the first test that fails, and ends the process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.path.write_text(report.nodeid)
            os._exit(KILLED)


class Mutating:
    """The plugin of pytest that runs the mutants."""

    def __init__(self, out: Path, seed: int, part: float, *, again: bool) -> None:
        self.out, self.tree = out, out / "tree"
        self.log, self.failed, self.outcomes = out / "last.log", out / "failed.txt", out / "outcomes.jsonl"
        for original in self.tree.rglob(f"*{ORIGINAL}"):  # of a run that was killed
            original.replace(original.with_suffix(".py"))
        self.sample = self.draw(seed, part)
        self.again = again
        self.kills: Counter[tuple[str, str]] = Counter()  # by module and test
        self.found: list[Outcome] = []

    def draw(self, seed: int, part: float) -> list[Mutant]:
        """The mutants, the packages one after the other; a smaller part is the beginning of a larger one."""
        every: dict[str, list[Mutant]] = {package: [] for package in PACKAGES}
        for path in sorted((self.tree / "noiseproof").rglob("*.py")):
            module = str(path.relative_to(self.tree))
            if package := package_of(module):
                every[package] += mutants(module, path.read_bytes())
        drawn = []
        for package, found in every.items():
            random.Random(f"{seed} {package}").shuffle(found)
            drawn += found[: round(part * PACKAGES[package][0])]
        return drawn

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of the tests: the mutants."""
        self.items = {item.nodeid: item for item in session.items}
        self.plugins = session.config.pluginmanager
        self.record = self.recorded()
        self.functions = Functions(self.tree, tuple(PACKAGES))
        known = self.known()
        self.kills.update((one.module, one.by) for one in known.values())
        dear = [mutant for mutant in self.sample if self.functions.compiled(mutant)]
        quick = [mutant for mutant in self.sample if mutant not in dear]
        for number, mutant in enumerate([*quick, *dear], start=1):
            if mutant.key not in known:
                outcome = known[mutant.key] = self.outcome(mutant)
                with self.outcomes.open("a") as file:
                    file.write(json.dumps(vars(outcome)) + "\n")
                line = f"{number}/{len(self.sample)} {outcome.kind} {outcome.seconds:.1f} s {mutant.key}\n"
                with (self.out / "progress.log").open("a") as file:
                    file.write(line)
        self.found = [known[mutant.key] for mutant in self.sample]
        return True

    def known(self) -> dict[str, Outcome]:
        """The last outcome of each mutant so far."""
        if not self.outcomes.exists():
            return {}
        found = [Outcome(**json.loads(line)) for line in self.outcomes.read_text().splitlines()]
        return {one.key: one for one in found if one.killed or not self.again}

    def recorded(self) -> Record:
        """What each test calls; only those that are new are run for it."""
        path = self.out / "record.jsonl"
        record = Record.read(path, set(self.items))
        new = [item for name, item in self.items.items() if name not in record.seconds]
        if new:
            recorder = Recorder(self.tree, tuple(PACKAGES), path)

            def work() -> None:
                self.plugins.register(recorder)
                run(new)

            if fork(work, self.log, 3600) != 0:
                raise SystemExit(f"the tests cannot be recorded; see {self.log}")
            record = Record.read(path, set(self.items))
        return record

    def outcome(self, mutant: Mutant) -> Outcome:
        """What becomes of a mutant."""
        default = PACKAGES[package_of(mutant.module)][1]
        tests = self.record.tests(mutant, default)
        tests.sort(key=lambda test: -self.kills[mutant.module, test])  # what noticed others of the module comes first
        begun = _spent()
        code = self.live(mutant, tests)
        if code == ELSEWHERE:
            code = self.written(mutant, tests)
        by = self.failed.read_text() if self.failed.exists() else ""
        self.kills[mutant.module, by] += 1
        kind = "timeout" if code is None else "survived" if code == 0 else "killed"
        return Outcome(mutant.key, mutant.operator, kind, by, len(tests), round(_spent() - begun, 1))

    def limit(self, tests: list[str]) -> float:
        """Seconds of the processor that the tests may take."""
        return 20 + 3 * sum(self.record.seconds[test] for test in tests)

    def live(self, mutant: Mutant, tests: list[str]) -> int | None:
        """0 where no test failed; ELSEWHERE where the mutant cannot be made in what is imported already."""

        def work() -> None:
            if not self.functions.mutate(mutant):
                os._exit(ELSEWHERE)
            self.plugins.register(FirstFailure(self.failed))
            run([self.items[test] for test in tests])

        self.failed.unlink(missing_ok=True)
        code = fork(work, self.log, self.limit(tests))
        if code == BROKEN:
            raise SystemExit(f"{mutant.key} could not be tried; see {self.log}")
        return code

    def written(self, mutant: Mutant, tests: list[str]) -> int | None:
        """The same with the mutant in its file, in a new session: 0, or another number where a test failed."""
        path, scratch = self.tree / mutant.module, self.out / "scratch"
        source, original = path.read_bytes(), path.with_suffix(ORIGINAL)
        shutil.rmtree(scratch, ignore_errors=True)
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # a mutant's must not be taken for its original's
        compiled = self.functions.compiled(mutant)
        if compiled:
            environment["NUMBA_CACHE_DIR"] = str(scratch)
        environment["PYTHONPATH"] = os.pathsep.join([str(self.tree), *sys.path])
        command = [sys.executable, "-m", "pytest", *arguments(self.out), "-x", *tests]

        def work() -> None:
            os.execve(sys.executable, command, environment)

        path.rename(original)
        try:
            path.write_bytes(mutant.applied(source))
            code = fork(work, self.log, self.limit(tests) + 60 * compiled)
        finally:
            original.replace(path)
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise SystemExit(f"no test for {mutant.key}; see {self.log}")
        return code


def _spent() -> float:
    """Seconds of the processor that the processes so far took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
