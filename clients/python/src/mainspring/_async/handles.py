"""Handles on sessions, sends, runs and timers. They hold an id, and may be made anew from it anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from .. import types
from .._answers import Answer, Limit, Outcome, RunAnswer
from .._decode import Duration
from .._events import Text, TextPiece, run_event, send_event
from .._http import segment
from .._schema import schema_of
from ..errors import MainspringError
from .core import AsyncEvents, AsyncPages

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client import AsyncClient

T = TypeVar("T")
Input = str | Sequence[types.InputPart]
FINAL = ("completed", "failed", "cancelled")


class AsyncWaiting(MainspringError):
    """The send waits for a person: `questions` are to be answered. With none, it is to be resumed or aborted."""

    def __init__(self, send: types.SendView, questions: list[AsyncQuestion]) -> None:
        self.send: types.SendView = send
        self.questions: list[AsyncQuestion] = questions
        super().__init__(f"{send.id} waits on {send.waiting_on}")


class AsyncQuestion:
    """A call that waits for a person: a question, or one that needs an approval."""

    def __init__(self, client: AsyncClient, call: types.WaitingCall) -> None:
        self._client = client
        self.call: types.WaitingCall = call

    @property
    def id(self) -> str:
        return self.call.call_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.call.name!r}, {self.text!r})"

    @property
    def text(self) -> str:
        """What a person is asked."""
        if self.call.asks:
            return self.call.asks.message
        if self.call.wants == "permission":
            return f"May {self.call.name} be called with {self.call.arguments}?"
        question = self.call.arguments.get("question") if isinstance(self.call.arguments, dict) else None
        return question if isinstance(question, str) else f"{self.call.name}: {self.call.arguments}"

    async def answer(self, value: Any) -> bool:
        """Whether this answer counts: not if the question had one already, also one of an earlier attempt of yours."""
        asks = self.call.asks
        return await self._post({"action": "accept", "content": value} if asks else value)

    async def approve(self, note: str | None = None) -> bool:
        """Lets the call be made. Whether this answer counts."""
        if self.call.asks:
            return await self._post({"action": "accept"})
        return await self._post({"approved": True, **({"note": note} if note else {})})

    async def deny(self, note: str | None = None) -> bool:
        """Does not; the model reads the note. Whether this answer counts."""
        if self.call.asks:
            return await self._post({"action": "decline"})
        return await self._post({"approved": False, **({"note": note} if note else {})})

    async def _post(self, output: Any) -> bool:
        result: types.ResultBody = {"call_id": self.id, "output": output}
        if self.call.asks:
            result["question"] = self.call.asks.question
        elif self.call.wants in ("permission", "answer"):
            result["answers"] = "permission" if self.call.wants == "permission" else "answer"
        return await post_result(self._client, self.call.session_id, result) == "accepted"


async def post_result(client: AsyncClient, session_id: str, result: types.ResultBody) -> str:
    """Posts a result, again while another transaction holds the session. What became of it."""
    for pause in (0.1, 0.5, 2.0, 0.0):
        posted = (await client.api.post_tool_results(session_id, {"results": [result]})).results[0].status
        if posted != "locked" or not pause:
            break
        await asyncio.sleep(pause)
    return posted


class AsyncStream(AsyncEvents[types.SendEvent], Generic[T]):
    """Events of a send, or of all sends of a session."""

    def __init__(self, client: AsyncClient, path: str, output: Any, *, after: str | None, ends: bool) -> None:
        super().__init__(client.caller, path, send_event, after=after, ends=ends)
        self._output, self._shown, self._last = output, Text(), Outcome()
        self._piece: TextPiece | None = None

    @property
    def text(self) -> str:
        """The text of the answer so far: what has become void is not in it."""
        return self._shown.text

    @property
    def answer(self) -> Answer[T]:
        """The answer, once the last event has come: raises if the send failed or was cancelled."""
        return self._last.answer(self._output)

    async def text_deltas(self) -> AsyncIterator[TextPiece]:
        """The text piece by piece; a piece with `replace` stands for all before it."""
        async for _ in self:
            if self._piece:
                yield self._piece

    def _connected(self) -> None:
        super()._connected()
        self._shown.reconnected()

    def _saw(self, event: types.SendEvent) -> None:
        self._piece = self._shown.feed(event)
        if isinstance(event, types.SendView):
            self._last.send = event


class AsyncSend(Generic[T]):
    """A message on its way, and its answer."""

    def __init__(self, client: AsyncClient, id: str, output: Any = None, *, view: types.SendView | None = None) -> None:
        self._client, self._output, self._view = client, output, view
        self.id: str = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def get(self) -> types.SendView:
        """Where it stands."""
        self._view = await self._client.api.get_send(self.id)
        return self._view

    async def wait(self, timeout: Duration | float | None = None) -> Answer[T]:
        """Its answer. Outlasts restarts of the server.

        Raises `SendFailed` and `SendCancelled`, `Waiting` as soon as a person is asked, and `TimeoutError` after
        `timeout`, which leaves the send alone. For a tool of a client's process it goes on waiting."""
        limit, pause = Limit(timeout), 0.05
        while True:
            view = await self._client.wait_for(f"/v1/sends/{segment(self.id)}", types.SendView, limit)
            if view.status in FINAL:
                return Outcome(view).answer(self._output)
            if view.status == "waiting" and view.waiting_on in ("human", "recovery"):
                questions = await self.questions()
                if questions or view.waiting_on == "recovery":
                    raise AsyncWaiting(view, questions)
            if limit.over:
                raise TimeoutError(f"{self.id} is still {view.status}")
            # The server answers at once while only someone outside can let it go on.
            pause = min(pause * 1.5, 1.0) if view.status == "waiting" else 0.05
            if view.status == "waiting":
                await asyncio.sleep(limit.left(pause))

    def stream(self, after: str | None = None) -> AsyncStream[T]:
        """Its events from the beginning, or after the cursor of another stream."""
        return AsyncStream(self._client, f"/v1/sends/{segment(self.id)}/events", self._output, after=after, ends=True)

    async def cancel(self) -> types.SendView:
        """Ends it at the next safe point, and returns how it ended."""
        return await self._client.api.cancel_send(self.id, wait="30s")

    async def steer(self, input: Input, *, interrupt: bool = False, key: str | None = None) -> None:
        """A message that it reads before its next round, or at once with `interrupt`."""
        options: types.SendOptions = {"on_busy": "interrupt" if interrupt else "steer"}
        session = await self._session_id()
        await self._client.api.create_send_in_session(session, {"input": input, "options": options}, key=key)

    async def questions(self) -> list[AsyncQuestion]:
        """What persons are asked by it and by the sessions below its own."""
        return await self._client.questions_of(await self._session_id())

    async def _session_id(self) -> str:
        view = self._view or await self.get()
        return view.session_id


class AsyncSession:
    """A conversation. It is made with its first send, unless it has an id."""

    def __init__(self, client: AsyncClient, id: str | None, new: types.NewSessionBody) -> None:
        self._client, self._new = client, new
        self.id: str | None = id
        self._making = asyncio.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def open(self) -> str:
        """Its id: it is made if it has none."""
        if self.id is None:
            async with self._making:
                if self.id is None:
                    self.id = (await self._client.api.create_session(self._new)).id
        return self.id

    @overload
    async def send(
        self, input: Input, *, output: None = None, key: str | None = None, **options: Unpack[types.SendOptions]
    ) -> AsyncSend[str]: ...

    @overload
    async def send(
        self, input: Input, *, output: type[T], key: str | None = None, **options: Unpack[types.SendOptions]
    ) -> AsyncSend[T]: ...

    @overload
    async def send(
        self, input: Input, *, output: Mapping[str, Any], key: str | None = None, **options: Unpack[types.SendOptions]
    ) -> AsyncSend[Any]: ...

    async def send(
        self, input: Input, *, output: Any = None, key: str | None = None, **options: Unpack[types.SendOptions]
    ) -> AsyncSend[Any]:
        """Accepts a message, whatever the session does at the moment.

        `output` is the type of the answer: a dataclass, a TypedDict, a Pydantic model, `list[str]`, or a JSON Schema.
        The same `key` always stands for the same send; without one, each call is another."""
        if output is not None:
            options["output_schema"] = schema_of(output)
        body: types.SendBody = {"input": input, "options": options} if options else {"input": input}
        if self.id is None and "key" not in self._new:
            async with self._making:
                if self.id is None:
                    new: types.SendAnywhereBody = {"input": input, "session": cast(types.SendSession, self._new)}
                    if options:
                        new["options"] = options
                    view = await self._client.api.create_send(new, key=key)
                    self.id = view.session_id
                    return AsyncSend(self._client, view.id, output, view=view)
        view = await self._client.api.create_send_in_session(await self.open(), body, key=key)
        return AsyncSend(self._client, view.id, output, view=view)

    @overload
    async def send_and_wait(
        self, input: Input, *, output: None = None, timeout: Duration | float | None = None, key: str | None = None,
        **options: Unpack[types.SendOptions],
    ) -> Answer[str]: ...

    @overload
    async def send_and_wait(
        self, input: Input, *, output: type[T], timeout: Duration | float | None = None, key: str | None = None,
        **options: Unpack[types.SendOptions],
    ) -> Answer[T]: ...

    async def send_and_wait(
        self, input: Input, *, output: Any = None, timeout: Duration | float | None = None, key: str | None = None,
        **options: Unpack[types.SendOptions],
    ) -> Answer[Any]:
        """Sends and waits."""
        send: AsyncSend[Any] = await self.send(input, output=output, key=key, **options)
        return await send.wait(timeout)

    def stream(self, after: str | None = None) -> AsyncStream[Any]:
        """Events of all of its sends, until you leave."""
        if self.id is None:
            raise ValueError("the session has no id yet: open() it, or send something")
        return AsyncStream(self._client, f"/v1/sessions/{segment(self.id)}/events", None, after=after, ends=False)

    async def get(self) -> types.SessionView:
        """Where it stands."""
        return await self._client.api.get_session(await self.open())

    async def fork(self, *, seq: int | None = None, key: str | None = None) -> AsyncSession:
        """A copy of it, up to a message."""
        body: types.ForkBody = {} if seq is None else {"seq": seq}
        made = await self._client.api.fork_session(await self.open(), body, key=key)
        return AsyncSession(self._client, made.id, {})

    async def messages(self) -> AsyncPages[types.Message | types.FoldEntry]:
        """Its transcript."""
        return self._client.api.list_messages(await self.open())

    async def questions(self) -> list[AsyncQuestion]:
        """What persons are asked by it and by the sessions below it."""
        return await self._client.questions_of(await self.open())

    async def token(self, scopes: Sequence[types.Scope] = ("read",), ttl: Duration | None = None) -> str:
        """A token with which a page uses this session, and nothing else, for a while. Each call makes another one."""
        body: types.NewTokenBody = {"session_id": await self.open(), "scopes": list(scopes)}
        if ttl is not None:
            body["ttl"] = ttl
        return (await self._client.api.create_token(body)).token

    async def delete(self) -> None:
        """Deletes it with everything below it."""
        await self._client.api.delete_session(await self.open())


class AsyncRunStream(AsyncEvents[types.RunEvent]):
    """Events of a run."""


class AsyncRun(Generic[T]):
    """A workflow that runs."""

    def __init__(self, client: AsyncClient, id: str, output: Any = None) -> None:
        self._client, self._output = client, output
        self.id: str = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def get(self) -> types.RunView:
        """Where it stands."""
        return await self._client.api.get_run(self.id)

    async def wait(self, timeout: Duration | float | None = None) -> RunAnswer[T]:
        """Its result. Raises `RunFailed`, `RunCancelled`, and `TimeoutError` after `timeout`."""
        limit = Limit(timeout)
        while True:
            view = await self._client.wait_for(f"/v1/runs/{segment(self.id)}", types.RunView, limit)
            if view.status in FINAL:
                return RunAnswer.of(view, self._output)
            if limit.over:
                raise TimeoutError(f"{self.id} is still {view.status}")

    def stream(self, after: str | None = None) -> AsyncRunStream:
        """Its events from the beginning, or after the cursor of another stream."""
        return AsyncRunStream(self._client.caller, f"/v1/runs/{segment(self.id)}/events", run_event, after=after, ends=True)

    def nodes(self, prefix: str | None = None) -> AsyncPages[types.NodeView]:
        """Its nodes in the order in which they were reached; with a prefix, those below a path."""
        return self._client.api.list_nodes(self.id, prefix=prefix)

    async def questions(self) -> list[AsyncQuestion]:
        """What persons are asked by its leaves."""
        waiting = [node.session_id async for node in self.nodes() if node.state == "waiting" and node.session_id]
        return [question for session in dict.fromkeys(waiting) for question in await self._client.questions_of(session)]

    async def cancel(self, reason: str | None = None) -> types.RunView:
        """Cancels it with everything below it, and returns how it ended."""
        return await self._client.api.cancel_run(self.id, {"reason": reason}, wait="30s")

    async def pause(self) -> types.RunView:
        """Lets it start nothing more until it is resumed. What runs goes on to its end."""
        return await self._client.api.pause_run(self.id)

    async def resume(self) -> types.RunView:
        """Lets it go on after a pause."""
        return await self._client.api.resume_run(self.id)

    async def retry(self, *, max_tokens: int | None = None) -> types.RunView:
        """Runs again what did not succeed."""
        return await self._client.api.retry_run(self.id, {"max_tokens": max_tokens})


class AsyncTimer:
    """A schedule."""

    def __init__(self, client: AsyncClient, id: str, next: Sequence[datetime] = ()) -> None:
        self._client = client
        self.id: str = id
        self.next: list[datetime] = list(next)
        """When it is due, as it was when this handle was made."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def get(self) -> types.TimerView:
        """Where it stands."""
        view = await self._client.api.get_timer(self.id)
        self.next = view.next
        return view

    async def pause(self) -> types.TimerView:
        """Nothing is due until it is resumed."""
        return await self._client.api.pause_timer(self.id)

    async def resume(self) -> types.TimerView:
        """Goes on with the next occurrence."""
        return await self._client.api.resume_timer(self.id)

    async def change(self, change: types.TimerChangeBody) -> types.TimerView:
        """Changes what it says and when it is due; what is not given stays as it is."""
        view = await self._client.api.change_timer(self.id, change)
        self.next = view.next
        return view

    async def fire(self) -> types.TimerView:
        """Fires its next occurrence now, once, however often the request has to be made.

        The schedule of a timer that recurs goes on as it was.
        """
        n = (await self.get()).occurrences + 1
        return await self._client.api.fire_timer(self.id, {"n": n})

    async def cancel(self) -> types.TimerView:
        """Ends it; it can still be read."""
        return await self._client.api.cancel_timer(self.id)

    def occurrences(self) -> AsyncPages[types.OccurrenceView]:
        """What became of each time that it was due."""
        return self._client.api.list_occurrences(self.id)

