"""Ctrl-C as a request: the loop finishes its step, saves, and says how to go on."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop and did, after a whole step; its message says how to go on.

    `by_hand`: by Ctrl-C, so that somebody may wait for results. `result`: those of the moment, if there are any.
    """

    def __init__(self, message: str, *, by_hand: bool = True) -> None:
        super().__init__(message)
        self.by_hand = by_hand
        self.result: Any = None  # a FitResult


class Signals:
    """While entered, the first SIGINT or SIGTERM only sets `requested`; a second one interrupts at once.

    Outside the main thread Python delivers no signals, so there this does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self.by_hand = True
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested, self.by_hand = True, number == signal.SIGINT
