"""Ends of sends and runs, as values or errors."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import types
from ._decode import Duration, seconds
from ._schema import fit
from .errors import RunCancelled, RunFailed, SendCancelled, SendFailed

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The answer of a completed send."""

    text: str
    output: T
    """The value of the `output` that was asked for; without one, the text."""
    send: types.SendView

    @property
    def usage(self) -> types.Usage:
        return self.send.usage


@dataclass(frozen=True)
class RunAnswer(Generic[T]):
    """The result of a completed run."""

    text: str
    output: T
    """The value of the `output` that was asked for; without one, the result's value, or its text if it has none."""
    run: types.RunView

    @staticmethod
    def of(run: types.RunView, output: Any) -> RunAnswer[Any]:
        if run.status == "failed":
            raise RunFailed(run)
        if run.status == "cancelled":
            raise RunCancelled(run)
        result = run.result if isinstance(run.result, dict) else {}
        text, payload = result.get("text") or "", result.get("payload")
        value = text if payload is None else payload
        return RunAnswer(text, value if output is None else fit(output, value), run)


class Limit:
    """The time that a caller waits at most."""

    def __init__(self, timeout: Duration | float | None) -> None:
        self._until = math.inf if timeout is None else time.monotonic() + seconds(timeout)

    def left(self, most: float) -> float:
        return min(most, max(0.0, self._until - time.monotonic()))

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._until


@dataclass
class Outcome:
    """How a send ended, once it did."""

    send: types.SendView | None = None

    def answer(self, output: Any) -> Answer[Any]:
        send = self.send
        if send is None:
            raise RuntimeError("the send has not ended yet, or its last event was not read")
        if send.status == "failed":
            raise SendFailed(send)
        if send.status == "cancelled":
            raise SendCancelled(send)
        text = send.output_text or ""
        return Answer(text, text if output is None else fit(output, send.output), send)
