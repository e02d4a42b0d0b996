"""Requests over httpx, pages and event streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from typing import Generic, TypeVar

import httpx

from .._decode import seconds
from .._events import FINAL, Lines, Raw
from .._http import SILENCE_MAX, Attempts, Call, Page, Settings

T = TypeVar("T")
E = TypeVar("E")
S = TypeVar("S")


class AsyncCaller:
    """Makes calls, and repeats them as far as that is harmless."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient | None = None) -> None:
        self.settings = settings
        self._http = http or httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=20))
        self._owned = http is None

    async def close(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def call(self, call: Call[T], *, within: float | None = None) -> T:
        """Makes a call, repeated as often as the settings say, or for so long."""
        settings = self.settings
        attempts = Attempts(limit=settings.retries if within is None else None, within=within, pause_max=settings.timeout)
        patience = settings.timeout if within is None else within
        request = call.request(settings.url)
        own = request.pop("headers")
        timeout = httpx.Timeout(patience, read=patience + seconds((call.query or {}).get("wait") or 0))
        while True:
            try:
                answer = await self._http.request(**request, headers={**settings.per_request(), **own}, timeout=timeout)
                if answer.is_success:
                    return call.decode(answer)
                pause = attempts.after_answer(answer, call.repeatable)
            except httpx.TransportError as error:
                pause = attempts.after_error(error, call.repeatable)
            await asyncio.sleep(pause)

    async def open(self, path: str, cursor: str | None) -> httpx.Response:
        """The answer to one request for an event stream, its body still to be read."""
        settings = self.settings
        headers = {**settings.per_request(), "accept": "text/event-stream", **({"last-event-id": cursor} if cursor else {})}
        timeout = httpx.Timeout(settings.timeout, read=SILENCE_MAX)
        request = self._http.build_request("GET", settings.url + path, headers=headers, timeout=timeout)
        return await self._http.send(request, stream=True)


class AsyncPages(Generic[T]):
    """A list. To iterate over it is to read all of its pages."""

    def __init__(self, caller: AsyncCaller, call: Call[Page[T]]) -> None:
        self._caller, self._call = caller, call

    async def page(self, cursor: str | None = None) -> Page[T]:
        """One page: the first, or the one that begins at a cursor."""
        query = {**(self._call.query or {}), **({"cursor": cursor} if cursor else {})}
        return await self._caller.call(replace(self._call, query=query))

    async def __aiter__(self) -> AsyncIterator[T]:
        page = await self.page()
        while True:
            for item in page.data:
                yield item
            if page.next_cursor is None:
                return
            page = await self.page(page.next_cursor)


class AsyncEvents(Generic[E]):
    """Events of something, from its beginning or after a cursor, over as many connections and servers as it takes.

    Only the last event ends it. To leave it early is to detach: what it is about goes on."""

    def __init__(self, caller: AsyncCaller, path: str, parse: Callable[[Raw], E], *, after: str | None, ends: bool) -> None:
        self.cursor: str | None = after
        """The last durable event that was read: where another reader goes on, with `after`."""
        self.connections: int = 0
        """How often it was connected."""
        self._caller, self._path, self._parse, self._ends = caller, path, parse, ends
        self._events = self._read()

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[E]:
        return self

    async def __anext__(self) -> E:
        return await anext(self._events)

    async def close(self) -> None:
        """Detaches."""
        await self._events.aclose()

    def _connected(self) -> None:
        self.connections += 1

    def _saw(self, event: E) -> None:
        """Keeps what is to be known of it."""

    async def _read(self) -> AsyncGenerator[E, None]:
        timeout = self._caller.settings.timeout
        attempts = Attempts(within=timeout, pause_max=timeout)
        while True:
            try:
                answer = await self._caller.open(self._path, self.cursor)
                try:
                    if answer.status_code == 200 and answer.headers.get("content-type", "").startswith("text/event-stream"):
                        self._connected()
                        lines = Lines()
                        async for chunk in answer.aiter_bytes():
                            attempts.succeeded()
                            for raw in lines.feed(chunk):
                                event = self._parse(raw)
                                self.cursor = raw.id or self.cursor
                                self._saw(event)
                                yield event
                                if self._ends and raw.event in FINAL:
                                    return
                        pause = attempts.after_end()
                    else:
                        await answer.aread()
                        pause = attempts.after_answer(answer, True)
                finally:
                    await answer.aclose()
            except httpx.TransportError as error:
                pause = attempts.after_error(error, True)
            await asyncio.sleep(pause)
