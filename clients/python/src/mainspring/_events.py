"""Event streams without sockets: bytes to events, and events to the text so far."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import types

FINAL = frozenset(f"{noun}.{end}" for noun in ("send", "run") for end in ("completed", "failed", "cancelled"))


@dataclass(frozen=True)
class Raw:
    """One event as it was sent."""

    event: str
    data: dict[str, Any]
    id: str | None


class Lines:
    """Parses `text/event-stream`, however its bytes are cut into chunks."""

    def __init__(self) -> None:
        self._rest = b""
        self._start = True
        self._event, self._data = "", list[str]()
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Raw]:
        self._rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            return
        if self._start and len(self._rest) >= 3:
            self._rest, self._start = self._rest.removeprefix(b"\xef\xbb\xbf"), False
        # A CR at the end may be half of a CRLF.
        whole = len(self._rest) - (1 if self._rest.endswith(b"\r") else 0)
        text, held = self._rest[:whole].replace(b"\r\n", b"\n").replace(b"\r", b"\n"), self._rest[whole:]
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        for line in lines:
            event = self._line(line.decode("utf-8", "replace"))
            if event:
                yield event

    def _line(self, line: str) -> Raw | None:
        if not line:
            name, identity, data = self._event, self._id, "\n".join(self._data)
            self._event, self._id, self._data = "", None, []
            return Raw(name or "message", json.loads(data), identity) if data else None
        member, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if member == "data":
            self._data.append(value)
        elif member == "event":
            self._event = value
        elif member == "id":
            self._id = value
        return None


def send_event(raw: Raw) -> types.SendEvent:
    model: Any = types.SEND_EVENTS.get(raw.event)
    event: types.SendEvent = model.from_dict(raw.data, cursor=raw.id) if model else _unknown(raw)
    return event


def run_event(raw: Raw) -> types.RunEvent:
    noun = raw.event.split(".")[0]
    if noun not in ("node", "run"):
        return _unknown(raw)
    model = types.NodeChanged if noun == "node" else types.RunChanged
    return model.from_dict(raw.data, cursor=raw.id, type=raw.event)


def _unknown(raw: Raw) -> types.UnknownEvent:
    return types.UnknownEvent(name=raw.event, data=raw.data, cursor=raw.id)


@dataclass(frozen=True)
class TextPiece:
    """A piece of the answer's text. With `replace` it stands for everything before it."""

    text: str
    replace: bool = False


class Text:
    """The text of the answer so far, without what has become void.

    Deltas are put together by round, attempt and offset, in characters. Those of an older attempt are void, and
    everything streamed is that isn't stored, once a send is resumed. A resumption is durable, so that it may come
    after the first deltas of the attempt that it began: these stay."""

    def __init__(self) -> None:
        self.text = ""
        self._send: str | None = None
        self._void = self._renewed = self._stored = False
        self._begin(-1, 0)

    def reconnected(self) -> None:
        """Live events may have been lost."""
        self._renewed = False

    def feed(self, event: types.SendEvent) -> TextPiece | None:
        """What the event changes."""
        if event.type == "unknown":
            return None
        send = event.id if isinstance(event, types.SendView) else event.send_id
        if send != self._send:
            self._send = send
            self._begin(-1, 0)
        match event.type:
            case "message.delta":
                self._delta(event)
            case "message.reset":
                if (event.round, event.attempt) >= self._at:
                    self._begin(event.round, event.attempt)
                    self._renewed = True
            case "send.resumed":
                self._void = self._void or not (self._renewed or self._stored)
                self._renewed = False
            case "message.completed" if event.role == "assistant":
                self._begin(event.round, self._at[1] if event.round == self._at[0] else 0)
                self._streamed = "".join(part["text"] for part in event.content if part["type"] == "text")
                self._stored = True
            case "send.completed":
                self._streamed, self._void = event.output_text or "", False
            case _:
                return None
        return self._show("" if self._void else self._streamed)

    def _begin(self, number: int, attempt: int) -> None:
        self._at = (number, attempt)
        self._streamed = ""
        self._void = self._renewed = self._stored = False

    def _delta(self, event: types.MessageDelta) -> None:
        at = (event.round, event.attempt)
        if at < self._at or (self._stored and event.round == self._at[0]):
            return
        if at > self._at:
            renewed = event.round == self._at[0]
            self._begin(*at)
            self._renewed = renewed
        if event.offset <= len(self._streamed):
            self._streamed += event.text[len(self._streamed) - event.offset :]
            self._void = False

    def _show(self, text: str) -> TextPiece | None:
        before, self.text = self.text, text
        if text == before:
            return None
        if text.startswith(before):
            return TextPiece(text[len(before) :])
        return TextPiece(text, replace=True)
