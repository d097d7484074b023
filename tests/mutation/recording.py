"""Which tests call which functions, and how long each takes: so that a mutant meets only tests that could notice it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import pytest
from mutation.operators import Mutant

MADE = -1  # the line of a dataclass that was made


class Recorder:
    """A plugin of pytest that writes a line for each function of `packages` (folders) that a test calls, and its time.

    Time is the processor's: others may use it too.

    Forked processes inherit it, and append to the same file.
    """

    def __init__(self, root: Path, packages: tuple[str, ...], out: Path) -> None:
        self.root, self.packages = f"{root}/", packages
        self.file = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.seen: set[CodeType | type] = set()
        self.test, self.outcome = "", ""

    def write(self, *record: object) -> None:
        os.write(self.file, (json.dumps(record) + "\n").encode())

    def trace(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename == "<string>" and code.co_name == "__init__":
            return self.made(type(frame.f_locals.get("self")))
        if code in self.seen:
            return
        self.seen.add(code)
        name = code.co_filename.removeprefix(self.root)
        if name.startswith(self.packages):
            self.write("call", self.test, name, code.co_firstlineno)

    def made(self, made: type) -> None:
        """Of a dataclass, whose `__init__` is in no file: who makes one may notice its defaults and limits."""
        if made in self.seen:
            return
        self.seen.add(made)
        for cls in made.__mro__:
            module = cls.__module__.replace(".", "/") + ".py"
            if module.startswith(self.packages):
                self.write("call", self.test, module, MADE)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.seen.clear()
        self.test = item.nodeid
        self.outcome, begun = "passed", time.process_time()
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.write("time", item.nodeid, time.process_time() - begun, self.outcome)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcome = "failed" if report.failed else self.outcome


@dataclass
class Record:
    """What a recorded run of the tests found."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of each test, set-up included
    of_function: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    of_module: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls, path: Path, tests: Container[str]) -> Record:
        """The record in a file, if there is one, of the tests that there are still.

        Each must have passed, or a mutant would be killed by what fails anyway.
        """
        record = cls()
        for kind, test, *more in map(json.loads, path.read_text().splitlines() if path.exists() else []):
            if test not in tests:
                continue
            if kind == "call":
                module, line = more
                record.of_function[module, line].add(test)
                record.of_module[module].add(test)
            else:
                seconds, outcome = more
                if outcome == "failed":
                    raise SystemExit(f"{test} fails without any mutation; mend it first")
                record.seconds[test] += seconds
        return record

    def tests(self, mutant: Mutant, default: tuple[str, ...]) -> list[str]:
        """The tests that could notice a mutant, the quickest first.

        Those that call its function; where it is in none, or in one that is compiled and so is not seen, those that
        call any of the module; without such, those in the folders of `default`. Defaults may be read without a call, by
        those that ask the package what there is.
        """
        found = self.of_function[mutant.module, mutant.function] or self.of_module[mutant.module]
        found = found or {test for test in self.seconds if test.startswith(default)}
        asking = set() if mutant.body else self.of_module[str(Path(mutant.module).parent / "__init__.py")]
        return sorted(found | asking, key=lambda test: (self.seconds[test], test))
