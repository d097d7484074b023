"""What a running fit shows: a bar with rate and time left on a terminal, a plain line per epoch elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from noiseproof.method import Run

_WIDE = 110  # columns of a terminal that has room for all that a bar can say


class Progress(Protocol):
    """What the loop reports to."""

    def start(self, run: Run, title: str) -> None: ...

    def step(self, run: Run, done: float) -> None:
        """After each step; `done` is the epochs completed with the fraction of the current one."""

    def epoch(self, run: Run) -> None:
        """After each epoch; its record is `run.history[-1]`."""

    def close(self) -> None: ...


class Silent:
    """Shows nothing."""

    def start(self, run: Run, title: str) -> None: ...

    def step(self, run: Run, done: float) -> None: ...

    def epoch(self, run: Run) -> None: ...

    def close(self) -> None: ...


def summary_line(record: dict[str, float]) -> str:
    """The figures of an epoch in one line."""
    names = {"train_loss": "loss", "train_accuracy": "train", "val_accuracy": "val", "test_accuracy": "test"}
    names["knn_accuracy"] = "k-NN"
    if "loss" in record:
        record = {"train_loss": record["loss"], **record}  # the method's own, where the training set is not evaluated
    parts = [
        f"{short} {record[key]:.3f}" if key == "train_loss" else f"{short} {100 * record[key]:5.1f} %"
        for key, short in names.items()
        if key in record
    ]
    return "  ".join(parts)


def opening(run: Run, title: str) -> str:
    """What is about to be trained, on what."""
    network = " and ".join(type(model).__name__ for model in run.models)
    weights = sum(parameter.numel() for parameter in run.models.parameters())
    held_out = "" if run.val is None else f", {len(run.val):,} held out"
    return f"{title}: {network}, {weights:,} weights, on {run.device}; {len(run.data):,} examples{held_out}.\n"


class Log:
    """A plain line every `seconds` and at the end, for logs and pipes."""

    def __init__(self, prefix: str = "", seconds: float = 5.0) -> None:
        self.prefix, self.seconds = prefix, seconds

    def start(self, run: Run, title: str) -> None:
        self._title, self._from = f"{self.prefix}{title}", run.epoch
        if not self.prefix:
            sys.stderr.write(opening(run, title))
        self._began = self._last = time.perf_counter()
        self._line = ""

    def step(self, run: Run, done: float) -> None: ...

    def epoch(self, run: Run) -> None:
        now = time.perf_counter()
        left = (now - self._began) / max(run.epoch - self._from, 1) * (run.epochs - run.epoch)
        record = run.history[-1]
        self._line = (
            f"{self._title}  epoch {run.epoch}/{run.epochs}  {summary_line(record)}  "
            f"{record['examples_per_second']:,.0f} examples/s  {left:.0f} s left\n"
        )
        if now - self._last >= self.seconds:
            self._last = now
            self._write()

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        """The line of the last epoch, once."""
        sys.stderr.write(self._line)
        sys.stderr.flush()
        self._line = ""


class Bar:
    """A bar with rate, time left and the figures of the last epoch; on a narrow terminal without the rate.

    What does not fit is cut from the figures: the name of the run and the time left stay whole.
    """

    def __init__(self, prefix: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        class Figures(TextColumn):
            def render(self, task: Any) -> Any:
                text = super().render(task)
                text.no_wrap, text.overflow = True, "ellipsis"  # its column may be narrower
                return text

        wide = Console(stderr=True).width >= _WIDE
        more = (TextColumn("{task.fields[rate]}"), TimeElapsedColumn()) if wide else ()
        self._bar = _rich_bar(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24 if wide else 10, table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[epoch]}/{task.total:.0f}"),
            *more,
            TextColumn("left"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            Figures("[dim]{task.fields[figures]}", table_column=Column(no_wrap=False)),
            transient=bool(prefix),
        )
        self._prefix, self._next = prefix, 0.0

    def start(self, run: Run, title: str) -> None:
        if not self._prefix:
            sys.stderr.write(opening(run, title))
        self._bar.start()
        self._task = self._bar.add_task(
            f"{self._prefix}{title}", total=run.epochs, completed=run.epoch, epoch=run.epoch, rate="", figures=""
        )

    def step(self, run: Run, done: float) -> None:
        now = time.perf_counter()
        if now >= self._next:  # the terminal wants ten updates a second, not one per step
            self._next = now + 0.1
            self._bar.update(self._task, completed=done)

    def epoch(self, run: Run) -> None:
        now = time.perf_counter()
        if now >= self._next or run.epoch == run.epochs:
            self._next = now + 0.1
            record = run.history[-1]
            rate = f"{record['examples_per_second']:,.0f}/s"
            self._bar.update(self._task, completed=run.epoch, epoch=run.epoch, rate=rate, figures=summary_line(record))

    def close(self) -> None:
        self._bar.stop()


def reporter(progress: bool | Progress, prefix: str = "") -> Progress:
    """True: a bar on a terminal, a log elsewhere; False: silence; an object: itself.

    With a `prefix`, one of several runs: its bar goes when it is done, its log has one line.
    """
    if progress is False:
        return Silent()
    if progress is True:
        return Bar(prefix) if sys.stderr.isatty() else Log(prefix)
    return progress


@contextmanager
def counting(
    what: str, *, show: bool = True, log: bool = False, begun: tuple[int, int] | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Call what this yields with (done, total): a bar with the time left on a terminal; elsewhere a line, if asked.

    `begun` is (done, total) at the start, where it is known.
    """
    if not show or not (log or sys.stderr.isatty()):
        yield lambda done, total: None
        return
    if not sys.stderr.isatty():
        began, first = time.perf_counter(), -1 if begun is None else begun[0]

        def line(done: int, total: int) -> None:
            nonlocal first
            first = done - 1 if first < 0 else first
            left = (time.perf_counter() - began) / max(done - first, 1) * (total - done)
            sys.stderr.write(f"{what}  {done}/{total}  {left:.0f} s left\n")
            sys.stderr.flush()

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(f"[bold]{what}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with _rich_bar(*columns, transient=True) as bar:
        completed, total = begun or (0, None)
        task = bar.add_task(what, total=total, completed=completed)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _rich_bar(*columns: Any, transient: bool) -> Any:
    """The one progress bar: on stderr, in this project's columns."""
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    return RichProgress(*columns, console=Console(stderr=True), transient=transient)
