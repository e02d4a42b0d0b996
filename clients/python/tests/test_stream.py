"""Bytes to events, events to text, wherever they are cut."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from servers import ID, Stub, written

import mainspring as m
from mainspring._events import Lines, Raw, Text, send_event

FILE = json.loads((Path(__file__).parents[2] / "scenario.json").read_text(encoding="utf-8"))
RECORDING: list[dict[str, Any]] = FILE["recordings"]["tool_and_takeover"]
WHOLE = b"".join(written(event) for event in RECORDING)
# The text after each event, for a reader who sees all of them.
TEXTS = [
    *[""] * 3, "Let me ", "Let me look.", *["Let me look."] * 8, "It was lost", "", "", *["It was sent"] * 2,
    *["It was sent on Monday. 👋🏽"] * 4,
]


def parsed(chunks: list[bytes]) -> list[Raw]:
    lines = Lines()
    return [raw for chunk in chunks for raw in lines.feed(chunk)]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_however_their_bytes_are_cut(ending: bytes) -> None:
    content = b"\xef\xbb\xbf: ping\n\n" + WHOLE.replace(b"\n", ending) + b"event: half\ndata: {}"
    whole = parsed([content])
    assert [raw.event for raw in whole] == [event["event"] for event in RECORDING]
    assert [raw.id for raw in whole] == [event.get("id") for event in RECORDING]
    assert parsed([content[n : n + 1] for n in range(len(content))]) == whole
    for seed in range(50):
        places = sorted(random.Random(seed).sample(range(len(content)), 20))
        chunks = [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]
        assert parsed(chunks) == whole


def test_data_may_have_lines_and_be_empty() -> None:
    assert parsed([b'data: {"a":\ndata: 1}\n\nevent: empty\n\ndata\n\n:x\n\nid: 7\ndata:{}\n\n']) == [
        Raw("message", {"a": 1}, None), Raw("message", {}, "7"),
    ]


def test_text_is_right_after_each_event() -> None:
    text, shown = Text(), ""
    for raw, expected in zip(parsed([WHOLE]), TEXTS, strict=True):
        piece = text.feed(send_event(raw))
        if piece:
            shown = piece.text if piece.replace else shown + piece.text
        assert text.text == expected, raw
        assert shown == expected, "who only prints the pieces shows the same"


@pytest.mark.parametrize("cut", range(len(RECORDING)))
def test_text_is_right_after_a_reader_came_back(cut: int) -> None:
    """It has the events up to the cut, and then those after the last durable one of them."""
    text = Text()
    for event in RECORDING[:cut]:
        text.feed(send_event(*parsed([written(event)])))
    durable = [n for n, event in enumerate(RECORDING[:cut]) if "id" in event]
    begin = durable[-1] + 1 if durable else 0
    text.reconnected()
    for n, event in list(enumerate(RECORDING))[begin:]:
        text.feed(send_event(*parsed([written(event)])))
        # While it is told again what it has, it has more.
        if n >= cut and event["event"] in ("message.delta", "message.completed", "send.completed"):
            assert text.text == TEXTS[n]


def delta(text: str, offset: int, attempt: int = 1, round: int = 0) -> Raw:
    return Raw("message.delta", {"send_id": ID, "round": round, "attempt": attempt, "offset": offset, "text": text}, None)


def resumed(reason: str = "takeover") -> Raw:
    data = {"id": ID, "send_id": ID, "status": "running", "at": "2026-01-01T00:00:00Z", "reason": reason}
    return Raw("send.resumed", data, "2.0")


@pytest.mark.parametrize(
    ("raws", "text"),
    [
        ([delta("👋🏽 ab", 0), delta("cd", 5)], "👋🏽 abcd"),
        ([delta("abc", 0), delta("abcde", 0)], "abcde"),
        ([delta("abc", 0), delta("cde", 2)], "abcde"),
        ([delta("abc", 0), delta("x", 5)], "abc"),
        ([delta("abc", 0), delta("x", 0, attempt=2), delta("d", 3)], "x"),
        ([delta("abc", 0), resumed()], ""),
        ([delta("abc", 0), resumed(), delta("x", 0, attempt=2)], "x"),
        ([delta("abc", 0), resumed(), delta("d", 3)], "abcd"),
        ([delta("abc", 0), delta("x", 0, attempt=2), resumed(), delta("y", 1, attempt=2)], "xy"),
    ],
)
def test_deltas_are_put_together_by_what_they_say(raws: list[Raw], text: str) -> None:
    made = Text()
    for raw in raws:
        made.feed(send_event(raw))
    assert made.text == text


def test_events_and_members_of_tomorrow_pass() -> None:
    event = send_event(Raw("send.dreamt", {"send_id": ID, "of": "sheep"}, "9.0"))
    assert (event.type, event.cursor) == ("unknown", "9.0")
    known = send_event(Raw("send.started", {"send_id": ID, "mood": "good"}, None))
    assert known.type == "send.started" and known.extra == {"mood": "good"}


@pytest.mark.usefixtures("short_pauses")
def test_a_stream_that_never_gets_anywhere_ends_with_an_error() -> None:
    stub = Stub(recording=[])
    with m.Client(stub.url, timeout=0.3) as client, client.send(ID).stream() as events, pytest.raises(m.Unreachable):
        list(events)
    stub.stop()
    assert len(stub.requests) > 2


def test_an_answer_is_not_there_before_the_last_event() -> None:
    stub = Stub(recording=RECORDING, cut_after=len(RECORDING))
    with m.Client(stub.url) as client, client.send(ID).stream() as events:
        next(events)
        with pytest.raises(RuntimeError, match="not ended"):
            _ = events.answer
        assert [event.type for event in events][-1] == "send.completed"
        assert events.answer.text == events.text
    stub.stop()
