"""Requests, answers and retries, without sockets: the same for both clients."""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from . import types
from ._decode import Model, converter, encode, plain
from .errors import ApiError, Unexpected, Unreachable, kind

try:
    from opentelemetry import propagate
except ImportError:
    propagate = None  # type: ignore[assignment]

T = TypeVar("T")
M = TypeVar("M", bound=Model)
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0
SILENCE_MAX = 45.0
"""Streams say something every 15 seconds."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a list, and where the next one begins."""

    data: list[T]
    next_cursor: str | None


@dataclass(frozen=True)
class Call(Generic[T]):
    """One operation with its arguments."""

    method: str
    path: str
    decode: Callable[[httpx.Response], T]
    query: Mapping[str, Any] | None = None
    body: Any = None
    binary: str | None = None
    key: str | None = None
    takes_key: bool = False
    repeatable: bool = True
    """Whether it may be made again when nobody knows whether it was made."""

    def request(self, url: str) -> dict[str, Any]:
        """What stays the same in each attempt: also the idempotency key, which is made here, once."""
        headers = {}
        if self.takes_key:
            headers["idempotency-key"] = self.key or str(uuid.uuid4())
        if isinstance(self.body, bytes):
            headers["content-type"] = self.binary or "application/octet-stream"
        elif self.body is not None:
            headers["content-type"] = "application/json"
        content = self.body if isinstance(self.body, bytes) or self.body is None else encode(self.body).encode()
        query = dict(_written(self.query or {}))
        return {"method": self.method, "url": url + self.path, "params": query, "headers": headers, "content": content}


def _written(query: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in query.items():
        if isinstance(value, Mapping):
            yield from _written({f"{name}[{member}]": each for member, each in value.items()})
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif value is not None:
            yield name, str(value if isinstance(value, (str, int)) else plain(value))


def segment(value: str | int) -> str:
    return quote(str(value), safe="")


def as_json(answer: httpx.Response) -> dict[str, Any]:
    try:
        data = json.loads(answer.content)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise _unexpected(answer, "its body is not a JSON object")
    return data


def as_model(model: type[M]) -> Callable[[httpx.Response], M]:
    return lambda answer: model.from_dict(as_json(answer))


def as_page(item: Any) -> Callable[[httpx.Response], Page[Any]]:
    convert = converter(item)

    def decode(answer: httpx.Response) -> Page[Any]:
        data = as_json(answer)
        return Page([convert(each) for each in data.get("data") or ()], data.get("next_cursor"))

    return decode


def as_text(answer: httpx.Response) -> str:
    return answer.text


def as_bytes(answer: httpx.Response) -> bytes:
    return answer.content


def as_nothing(answer: httpx.Response) -> None:
    return None


def _unexpected(answer: httpx.Response, why: str) -> ApiError:
    where = answer.request.url.copy_with(query=None)
    problem = _problem(answer.status_code, "client.unexpected", f"{where} answered, and {why}: is a Mainspring server there?")
    return Unexpected(problem, request_id=answer.headers.get("x-request-id"))


def _problem(status: int, code: str, detail: str, retryable: bool = False) -> types.Problem:
    return types.Problem(type="about:blank", title=detail, status=status, detail=detail, code=code, retryable=retryable)


def error_of(answer: httpx.Response) -> ApiError:
    """The error that an answer stands for, if it isn't 2xx."""
    status, request_id = answer.status_code, answer.headers.get("x-request-id")
    try:
        data = json.loads(answer.content)
    except ValueError:
        data = None
    if isinstance(data, dict) and isinstance(data.get("code"), str):
        problem = types.Problem.from_dict({"detail": "", "retryable": False, **data, "status": status})
        return kind(status)(problem, request_id=request_id)
    if status < 400:
        return _unexpected(answer, "it redirects" if status >= 300 else "it is none of this API")
    text = " ".join(answer.text.split())[:200]
    problem = _problem(status, f"http.{status}", text or answer.reason_phrase, status in TRANSIENT)
    return kind(status)(problem, request_id=request_id)


def error_from(problem: types.Problem | None) -> ApiError:
    """The error of one item of a batch."""
    problem = problem or _problem(200, "client.unexpected", "the item has no outcome")
    return kind(problem.status)(problem)


TRANSIENT = {408, 429, 502, 503, 504}


class Attempts:
    """Decides whether and when a request is made again: `limit` times, or `within` seconds of the first failure."""

    def __init__(self, *, limit: int | None = None, within: float | None = None, pause_max: float = 60) -> None:
        self._limit, self._within, self._pause_max = limit, within, pause_max
        self.succeeded()

    def succeeded(self) -> None:
        """There was progress: the budget is whole again."""
        self._made, self._failing_since = 0, float("inf")

    def after_error(self, error: httpx.TransportError, repeatable: bool) -> float:
        """The pause after no answer, or none that is whole."""
        never_sent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        return self._pause(Unreachable(f"{type(error).__name__}: {error}"), never_sent or repeatable)

    def after_answer(self, answer: httpx.Response, repeatable: bool) -> float:
        """The pause after an answer that isn't 2xx, which has been read."""
        error = error_of(answer)
        if not error.retryable or answer.status_code in (409, 422):
            raise error
        # Who says so by a problem document, or refuses by a limit, has done nothing.
        known = answer.status_code == 429 or answer.headers.get("content-type", "").startswith("application/problem+json")
        return self._pause(error, repeatable or known, retry_after(answer))

    def after_end(self) -> float:
        """The pause after a stream that ended without its last event."""
        return self._pause(Unreachable("the stream ended before its last event"), True)

    def _pause(self, error: Exception, may_repeat: bool, asked: float = 0) -> float:
        now = time.monotonic()
        self._failing_since = min(self._failing_since, now)
        late = self._within is not None and now + asked > self._failing_since + self._within
        often = self._limit is not None and self._made >= self._limit
        if not may_repeat or late or often or asked > self._pause_max:
            raise error
        pause = max(asked, random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._made, 10))))
        self._made += 1
        return pause


def retry_after(answer: httpx.Response) -> float:
    value = answer.headers.get("retry-after", "")
    if value.isdigit():
        return float(value)
    try:
        # By the server's clock, whatever this machine's says.
        now = parsedate_to_datetime(answer.headers["date"]) if "date" in answer.headers else datetime.now(timezone.utc)
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (TypeError, ValueError):
        return 0.0


@dataclass(frozen=True, repr=False)
class Settings:
    """Where the server is, and who asks."""

    url: str
    key: str | Callable[[], str] | None
    headers: Mapping[str, str]
    timeout: float
    retries: int

    @staticmethod
    def of(
        url: str | None, key: str | Callable[[], str] | None, tenant: str | None, headers: Mapping[str, str] | None,
        timeout: float, retries: int, insecure: bool,
    ) -> Settings:
        url = (url or os.environ.get("MAINSPRING_SERVER") or "http://127.0.0.1:7464").rstrip("/")
        key = key or os.environ.get("MAINSPRING_API_KEY") or None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a server")
        local = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
        if key and parts.scheme == "http" and not local and not insecure:
            raise ValueError("a key is only sent over https or to this machine, unless insecure=True")
        given = {"user-agent": f"mainspring-python/{types.VERSION}"}
        given |= {name.lower(): each for name, each in (headers or {}).items()}
        if tenant:
            given["mainspring-tenant"] = tenant
        return Settings(url, key, given, timeout, retries)

    def per_request(self) -> dict[str, str]:
        """The headers of one attempt."""
        headers: dict[str, str] = {}
        if propagate is not None:
            propagate.inject(headers)
        headers.update(self.headers)
        if self.key:
            headers["authorization"] = f"Bearer {self.key() if callable(self.key) else self.key}"
        return headers
