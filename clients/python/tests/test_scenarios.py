"""Plays clients/scenario.json with both clients. The async one is driven step by step, so that one player does for both."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from servers import Dev, Stub

import mainspring as m

HERE = Path(__file__).parent
FILE = json.loads((HERE.parent.parent / "scenario.json").read_text(encoding="utf-8"))
KINDS: dict[str, type[BaseException] | tuple[type[BaseException], ...]] = {
    "invalid": m.Invalid, "denied": m.Denied, "not_found": m.NotFound, "conflict": m.Conflict, "limited": m.Limited,
    "unavailable": m.Unavailable, "unexpected": m.Unexpected, "unreachable": m.Unreachable, "timeout": TimeoutError,
    "waiting": (m.Waiting, m.AsyncWaiting), "send_failed": m.SendFailed, "send_cancelled": m.SendCancelled,
}


class Blocking:
    """An async handle whose methods wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop, self._inner = loop, inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._through(value) if inspect.ismethod(value) else value

    def _through(self, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = function(*(each._inner if isinstance(each, Blocking) else each for each in args), **kwargs)
            return self._wrap(self._loop.run_until_complete(made) if inspect.isawaitable(made) else made)

        return call

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrap(each) for each in value]
        return Blocking(self._loop, value) if type(value).__name__.startswith("Async") else value

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.run_until_complete(anext(self._inner))
        except StopAsyncIteration:
            raise StopIteration from None


class Player:
    def __init__(self, url: str, key: str | None, flavour: str, server: Dev | None, folder: Path) -> None:
        self.server, self.folder, self.url = server, folder, url
        self.loop = asyncio.new_event_loop() if flavour == "async" else None
        if self.loop:
            self.client: Any = Blocking(self.loop, m.AsyncClient(url, key=key))
        else:
            self.client = m.Client(url, key=key)
        self.kept: dict[str, Any] = {}
        self.seen: dict[int, list[Any]] = {}
        self.loops: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        self.revoke: Any = None

    def close(self) -> None:
        for process, _ in self.loops.values():
            process.kill()
            process.wait()
        self.client.close()
        if self.loop:
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    def play(self, step: dict[str, Any]) -> None:
        expected = step.get("expect", {})
        do = getattr(self, "do_" + step["do"])
        if isinstance(expected, dict) and "raises" in expected:
            with pytest.raises(KINDS[expected["raises"]]) as raised:
                do(step, expected)
            self.check_error(raised.value, expected)
        else:
            made = do(step, expected)
            if "as" in step:
                self.kept[step["as"]] = made

    def check_error(self, error: BaseException, expected: dict[str, Any]) -> None:
        for member in ("status", "code"):
            if member in expected:
                assert getattr(error, member) == expected[member], error
        if "pointers" in expected:
            assert isinstance(error, m.ApiError)
            assert [each.pointer for each in error.errors] == expected["pointers"]

    # Sends.

    def do_send(self, step: dict[str, Any], expected: dict[str, Any]) -> Any:
        session = self.client.session(agent=step.get("agent"))
        if "session" in step:
            session = self.client.session(self.kept[step["session"]].get().session_id)
        send = session.send(step["input"], output=step.get("output"), key=step.get("key"), **step.get("options", {}))
        if "same_as" in expected:
            assert send.id == self.kept[expected["same_as"]].id
        return send

    def send(self, step: dict[str, Any]) -> Any:
        return self.kept[step["send"]] if "send" in step else self.client.send(step["send_id"])

    def do_wait(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        answer = self.send(step).wait(step.get("timeout", "60s"))
        assert answer.send.status == expected.get("status", "completed")
        assert answer.text == expected.get("text", answer.text)
        assert expected.get("text_has", "") in answer.text
        for member in expected.get("output_has", []):
            assert member in answer.output

    def do_cancel(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.send(step).cancel().status == "cancelled"

    # Streams.

    def do_stream(self, step: dict[str, Any], expected: dict[str, Any]) -> Any:
        after = self.kept[step["after"]].cursor if "after" in step else None
        stream = self.send(step).stream(after)
        self.seen[id(stream)] = []
        self.read(stream, step, expected)
        return stream

    def do_read(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        self.read(self.kept[step["stream"]], step, expected)

    def do_leave(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        self.kept[step["stream"]].close()

    def read(self, stream: Any, step: dict[str, Any], expected: dict[str, Any]) -> None:
        seen = self.seen[id(stream)]
        left = step.get("until", {}).get("times", 0)
        for event in stream:
            seen.append(event)
            if event.cursor:
                assert stream.cursor == event.cursor
            left -= "until" in step and event.type == step["until"]["event"]
            if "until" in step and not left:
                return
        cursors = [tuple(map(int, event.cursor.split("."))) for event in seen if event.cursor]
        assert all(a < b for a, b in pairwise(cursors)), "durable events come once, in order"
        if "last" in expected:
            assert seen[-1].type == expected["last"]
        if expected.get("reconnects"):
            assert stream.connections > 1
        if expected.get("durable_once"):
            recorded = [event["id"] for event in FILE["recordings"]["tool_and_takeover"] if "id" in event]
            assert [event.cursor for event in seen if event.cursor] == recorded
        answer = stream.answer
        assert stream.text == answer.text == expected.get("text", answer.text)

    # Questions.

    def do_questions(self, step: dict[str, Any], expected: list[dict[str, Any]]) -> Any:
        questions = self.send(step).questions()
        assert len(questions) == len(expected)
        for question, members in zip(questions, expected, strict=True):
            for name, value in members.items():
                assert getattr(question.call, name) == value
        return questions[0]

    def do_approve(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.asked(step).approve(step.get("note")) is expected.get("accepted", True)

    def do_deny(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.asked(step).deny(step.get("note")) is expected.get("accepted", True)

    def asked(self, step: dict[str, Any]) -> Any:
        return next(each for each in self.send(step).questions() if each.call.wants == "permission")

    def do_answer(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.kept[step["question"]].answer(step["value"]) is expected["accepted"]

    # Tool loops.

    def do_loop(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        log = self.folder / step["as"]
        lease = [str(step["lease"])] if "lease" in step else []
        arguments = [sys.executable, str(HERE / "loop_program.py"), self.url, str(log), json.dumps(step["tool"]), *lease]
        self.loops[step["as"]] = (subprocess.Popen(arguments), log)

    def do_died(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.loops[step["loop"]][0].wait(30) == -9
        self.check_calls(step, expected)

    def do_stop(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        self.loops[step["loop"]][0].terminate()
        assert self.loops[step["loop"]][0].wait(30) == 0
        self.check_calls(step, expected)

    def check_calls(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        calls = self.calls(step["loop"])
        assert len(calls) == expected.get("calls", len(calls))
        if "same_call_as" in expected:
            assert calls == self.calls(expected["same_call_as"])

    def calls(self, loop: str) -> list[str]:
        log = self.loops[loop][1]
        return log.read_text().split() if log.exists() else []

    # The server.

    def do_kill(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.server
        self.server.kill()

    def do_start(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.server
        self.server.start()

    def do_revoke(self, step: dict[str, Any], expected: dict[str, Any]) -> None:
        self.revoke()


def cases() -> Iterator[Any]:
    for scenario in FILE["scenarios"]:
        for flavour in ("sync", "async"):
            yield pytest.param(scenario, flavour, id=f"{scenario['name']} ({flavour})")


@pytest.mark.parametrize(("scenario", "flavour"), list(cases()))
def test_scenario(
    scenario: dict[str, Any], flavour: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "stub" in scenario:
        stub = Stub([*scenario["stub"]])
        play(scenario, flavour, stub.url)
        stub.stop()
        assert len(stub.requests) == len(scenario.get("requests", stub.requests))
        for before, got, told in zip([None, *stub.requests], stub.requests, scenario.get("requests", []), strict=False):
            assert (got.method, got.path) == (told["method"], told["path"])
            if before and told.get("same_key"):
                assert got.headers["idempotency-key"] == before.headers["idempotency-key"]
            if "last_event_id" in told:
                assert got.headers["last-event-id"] == told["last_event_id"]
            if before and "later_by_ms" in told:
                assert (got.at - before.at) * 1000 >= told["later_by_ms"]
    elif "replay" in scenario:
        monkeypatch.setattr("mainspring._http.FIRST_PAUSE", 0.001)
        recording = FILE["recordings"][scenario["replay"]]
        for way in scenario["cut_after_each"]:
            for count in range(len(recording)):
                stub = Stub(recording=recording, cut_after=count, abrupt=way == "abrupt")
                play(scenario, flavour, stub.url)
                stub.stop()
                assert len(stub.requests) == 2
    else:
        kills = any(step["do"] == "kill" for step in scenario["steps"])
        # Keys may close a server to those without one, so they have one of their own, too.
        own = Dev() if kills or "key" in scenario else None
        server = own or request.getfixturevalue("dev")
        try:
            play(scenario, flavour, server.url, server)
        finally:
            if own:
                own.stop()


def play(scenario: dict[str, Any], flavour: str, url: str, server: Dev | None = None) -> None:
    key: Any = scenario.get("key")
    made = server.manage("POST", "/v1/keys", {"name": scenario["name"], **key}) if server and isinstance(key, dict) else None
    with tempfile.TemporaryDirectory() as folder:
        token: Any = made["key"] if made else key
        player = Player(url, token, flavour, server, Path(folder))
        if made and server:
            player.revoke = lambda: server.manage("DELETE", f"/v1/keys/{made['id']}")
        begin = time.monotonic()
        try:
            for step in scenario["steps"]:
                player.play(step)
        finally:
            player.close()
        assert time.monotonic() - begin < 60
