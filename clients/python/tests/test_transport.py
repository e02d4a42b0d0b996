"""What is repeated, when, and with which headers."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from servers import SEND, Stub

import mainspring as m
from mainspring._http import Attempts, Settings

SEND_NOT_FOUND = {"status": 404, "problem": {"code": "send.not_found"}}


def answer(status: int, headers: dict[str, str] | None = None, body: str = "") -> httpx.Response:
    return httpx.Response(status, headers=headers, text=body, request=httpx.Request("POST", "http://here/v1/sends"))


def problem(status: int, retryable: bool, headers: dict[str, str] | None = None) -> httpx.Response:
    body = {"type": "", "title": "", "detail": "so", "status": status, "code": "x.y", "retryable": retryable}
    told = {"content-type": "application/problem+json", **(headers or {})}
    return httpx.Response(status, headers=told, json=body, request=httpx.Request("POST", "http://here/v1/sends"))


@pytest.mark.parametrize(
    ("got", "repeatable", "repeated"),
    [
        (problem(429, True), False, True),
        (problem(503, True), False, True),
        (problem(429, False), True, False),
        (answer(429), False, True),
        (problem(500, False), True, False),
        (problem(409, True), True, False),
        (problem(422, True), True, False),
        (answer(502, {"content-type": "text/html"}, "<h1>Bad Gateway</h1>"), True, True),
        (answer(502, {"content-type": "text/html"}, "<h1>Bad Gateway</h1>"), False, False),
        (answer(408), True, True),
        (answer(404), True, False),
        (answer(302), True, False),
    ],
)
def test_an_answer_is_repeated_if_that_is_harmless_and_may_help(got: httpx.Response, repeatable: bool, repeated: bool) -> None:
    attempts = Attempts(limit=4)
    if repeated:
        assert 0 <= attempts.after_answer(got, repeatable) <= 0.2
    else:
        with pytest.raises(m.ApiError):
            attempts.after_answer(got, repeatable)


def test_a_request_that_may_have_arrived_is_not_made_again_unless_that_is_harmless() -> None:
    lost, unsent = httpx.ReadError("lost"), httpx.ConnectError("refused")
    assert Attempts(limit=4).after_error(lost, True) >= 0
    assert Attempts(limit=4).after_error(unsent, False) >= 0
    with pytest.raises(m.Unreachable):
        Attempts(limit=4).after_error(lost, False)


def test_pauses_grow_up_to_a_limit_and_end_with_the_budget() -> None:
    attempts = Attempts(limit=10)
    pauses = [attempts.after_end() for _ in range(10)]
    assert max(pauses) <= 8.0
    assert all(pause <= 0.2 * 2**n for n, pause in enumerate(pauses))
    with pytest.raises(m.Unreachable):
        attempts.after_end()
    attempts.succeeded()
    assert attempts.after_end() <= 0.2


def test_retry_after_is_a_number_or_a_date_and_obeyed_unless_it_is_too_long() -> None:
    attempts = Attempts(limit=4, pause_max=60)
    assert attempts.after_answer(problem(429, True, {"retry-after": "7"}), True) == 7
    date = formatdate(time.time() + 30, usegmt=True)
    assert 25 < attempts.after_answer(problem(503, True, {"retry-after": date}), True) <= 30
    here = {"retry-after": formatdate(30, usegmt=True), "date": formatdate(10, usegmt=True)}
    assert attempts.after_answer(problem(503, True, here), True) == 20, "by the server's clock"
    with pytest.raises(m.Limited):
        attempts.after_answer(problem(429, True, {"retry-after": "61"}), True)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, m.Invalid), (401, m.Denied), (403, m.Denied), (404, m.NotFound), (409, m.Conflict), (410, m.NotFound),
        (402, m.Limited), (413, m.Invalid), (422, m.Invalid), (429, m.Limited), (500, m.Unavailable), (503, m.Unavailable),
    ],
)
def test_errors_are_of_their_kind_and_name_the_request(status: int, kind: type[m.ApiError]) -> None:
    with pytest.raises(m.ApiError) as raised:
        Attempts(limit=0).after_answer(problem(status, False, {"x-request-id": "r-1"}), True)
    assert type(raised.value) is kind
    assert (raised.value.code, raised.value.status, raised.value.request_id) == ("x.y", status, "r-1")


def test_a_budget_of_time_begins_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([200.0, 205.0, 210.0, 300.0, 311.0])
    attempts = Attempts(within=10)
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    for _ in range(3):
        attempts.after_end()
    attempts.succeeded()
    attempts.after_end()
    with pytest.raises(m.Unreachable):
        attempts.after_end()


def test_each_call_has_a_key_of_its_own_unless_the_caller_names_one() -> None:
    stub = Stub([{"status": 202, "json": "$send"}] * 3)
    with m.Client(stub.url) as client:
        client.session().send("a")
        client.session().send("a")
        client.session().send("a", key="mine")
    stub.stop()
    keys = [request.headers["idempotency-key"] for request in stub.requests]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_headers_and_the_trace_go_with_every_request() -> None:
    stub = Stub([SEND_NOT_FOUND] * 2)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    tokens = iter(["msk_1", "msk_2"])
    client = m.Client(stub.url, key=lambda: next(tokens), tenant="ten_2", headers={"traceparent": trace})
    for _ in range(2):
        with pytest.raises(m.NotFound):
            client.send("snd_1").get()
    stub.stop()
    assert [request.headers["authorization"] for request in stub.requests] == ["Bearer msk_1", "Bearer msk_2"]
    assert {request.headers["traceparent"] for request in stub.requests} == {trace}
    assert {request.headers["mainspring-tenant"] for request in stub.requests} == {"ten_2"}


def test_the_current_span_is_the_parent_where_opentelemetry_is_installed() -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    stub = Stub([SEND_NOT_FOUND])
    span = trace.NonRecordingSpan(trace.SpanContext(0xABC, 0xDEF, False, trace.TraceFlags(1)))
    with trace.use_span(span), m.Client(stub.url) as client, pytest.raises(m.NotFound):
        client.send("snd_1").get()
    stub.stop()
    assert stub.requests[0].headers["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


def test_a_key_is_not_sent_in_the_clear_to_other_machines_and_never_shown() -> None:
    with pytest.raises(ValueError, match="https"):
        m.Client("http://agents.example", key="msk_secret")
    m.Client("http://agents.example", key="msk_secret", insecure=True).close()
    m.Client("http://127.0.0.1:1", key="msk_secret").close()
    client = m.Client("https://agents.example", key="msk_secret")
    assert "msk_secret" not in repr(client) + repr(client._settings) + repr(vars(client))
    client.close()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_SERVER", "https://agents.example/")
    monkeypatch.setenv("MAINSPRING_API_KEY", "msk_1")
    settings = Settings.of(None, None, None, None, 60, 4, False)
    assert (settings.url, settings.key) == ("https://agents.example", "msk_1")
    with pytest.raises(ValueError, match="not the URL"):
        m.Client("agents.example")


def test_pages_are_read_one_after_the_other() -> None:
    def page(ids: list[str], cursor: str | None) -> dict[str, Any]:
        return {"status": 200, "json": {"data": [{**SEND, "id": each} for each in ids], "next_cursor": cursor}}

    stub = Stub([page(["a", "b"], "b"), page([], "c"), page(["d"], None)])
    with m.Client(stub.url) as client:
        assert [send.id for send in client.api.list_sends(limit=2)] == ["a", "b", "d"]
    stub.stop()
    assert len(stub.requests) == 3


def test_an_item_of_a_batch_is_a_handle_or_an_error() -> None:
    refused = {"type": "", "title": "", "detail": "full", "status": 429, "code": "limit.sends", "retryable": True}
    results = [{"status": 202, "send": SEND}, {"status": 429, "problem": refused}]
    stub = Stub([{"status": 200, "json": {"results": results}}])
    with m.Client(stub.url) as client:
        made, error = client.send_all([{"input": "a"}, {"input": "b"}])
    stub.stop()
    assert isinstance(made, m.Send) and made.id == SEND["id"]
    assert isinstance(error, m.Limited) and error.code == "limit.sends" and error.retryable
