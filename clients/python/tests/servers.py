"""Servers for tests: the real binary, and stand-ins that misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

ID = "snd_00000000000000000000000000000001"
SEND: dict[str, Any] = {
    "id": ID, "session_id": "ses_00000000000000000000000000000001", "status": "queued", "rounds": 0, "attempts": 0,
    "usage": {"input_tokens": 0, "output_tokens": 0}, "created_at": "2026-01-01T00:00:00.000Z",
}
COMPLETED: dict[str, Any] = {**SEND, "status": "completed", "stop_reason": "end", "output_text": "hello"}


class Dev:
    """`mainspring dev` with the `demo` model, on a folder of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mainspring-python-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._admin: str | None = None
        self.start()

    def start(self) -> None:
        program = os.environ["MAINSPRING_BIN"]
        arguments = ["dev", "--listen", self.url.removeprefix("http://"), "--data-dir", f"{self._folder.name}/data"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        self._process = subprocess.Popen(
            [program, *arguments, "--provider", "demo"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 30
        while True:
            try:
                if httpx.get(f"{self.url}/readyz").is_success:
                    return
            except httpx.TransportError:
                assert time.monotonic() < until and self._process.poll() is None, "the server does not start"
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        self._folder.cleanup()

    def manage(self, method: str, path: str, body: Any = None) -> Any:
        """A request with a key that may do everything."""
        if self._admin is None:
            self._admin = httpx.post(f"{self.url}/v1/keys", json={"name": "tests", "scopes": ["admin"]}).json()["key"]
        answer = httpx.request(method, self.url + path, json=body, headers={"authorization": f"Bearer {self._admin}"})
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    at: float


@dataclass
class Stub:
    """Gives these answers, one per request; or replays a recording, of which the first connection is cut."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    recording: list[dict[str, Any]] | None = None
    cut_after: int = 0
    abrupt: bool = False
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.close_connection = True
                length = int(self.headers.get("content-length") or 0)
                self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                stub.requests.append(Request(self.command, urlsplit(self.path).path, headers, time.monotonic()))
                if stub.recording is None:
                    self._answer(stub.answers.pop(0) if stub.answers else {"status": 500, "problem": {"code": "internal"}})
                else:
                    self._replay(stub.recording)

            do_POST = do_GET

            def _answer(self, answer: dict[str, Any]) -> None:
                if "events" in answer:
                    return self._stream([written(event) for event in answer["events"]], False)
                headers = {"content-type": "application/json", **answer.get("headers", {})}
                if "problem" in answer:
                    headers["content-type"] = "application/problem+json"
                    told = {"type": "about:blank", "title": "so", "detail": "so", "status": answer["status"]}
                    body = json.dumps({**told, "retryable": False, **answer["problem"]}).encode()
                elif "json" in answer:
                    body = json.dumps(filled(answer["json"], answer.get("with"))).encode()
                else:
                    body = answer.get("body", "").encode()
                if answer.get("cut") == "all":
                    return
                self.send_response(answer["status"])
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if answer.get("cut") == "half" else body)

            def _replay(self, recording: list[dict[str, Any]]) -> None:
                query = parse_qs(urlsplit(self.path).query)
                cursor = self.headers.get("last-event-id") or query.get("after", [None])[0]
                begin = 0 if cursor is None else [event.get("id") for event in recording].index(cursor) + 1
                rest = [written(event) for event in recording[begin:]]
                first = len(stub.requests) == 1
                self._stream(rest[: stub.cut_after] if first else rest, stub.abrupt and first)

            def _stream(self, events: list[bytes], abrupt: bool) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for event in events:
                    # In two pieces, cut within a character where it has such.
                    for piece in (event[: len(event) * 2 // 3], event[len(event) * 2 // 3 :]):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if not abrupt:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def filled(value: Any, more: dict[str, Any] | None = None) -> Any:
    """The scenario file's names for what a server says."""
    known = {"$id": ID, "$send": SEND, "$completed": COMPLETED}
    if isinstance(value, dict):
        return {name: filled(each) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each) for each in value]
    value = known.get(value, value) if isinstance(value, str) else value
    return {**value, **(more or {})} if isinstance(value, dict) else value


def written(event: dict[str, Any]) -> bytes:
    data = filled(event["data"], event.get("with"))
    head = f"id: {event['id']}\n" if "id" in event else ""
    return f"{head}event: {event['event']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
