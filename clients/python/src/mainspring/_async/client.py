"""The client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

import httpx

from .. import types
from .._answers import Limit
from .._decode import Duration, Model
from .._http import Call, Settings, as_model, error_from
from ..errors import ApiError, Unreachable
from ..flow import Workflow
from ..tools import LEASE, AsyncToolLoop, Tool, Tools
from .api import AsyncApi
from .core import AsyncCaller
from .handles import AsyncQuestion, AsyncRun, AsyncSend, AsyncSession, AsyncTimer, Input

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
M = TypeVar("M", bound=Model)
POLL = 30.0


class AsyncClient:
    """Speaks to a server. Use it as a context manager, or `close` it.

    `url` and `key` are those of MAINSPRING_SERVER and MAINSPRING_API_KEY unless given. `headers` go with every request;
    a `traceparent` among them, or the current span where OpenTelemetry is installed, is the parent of the server's."""

    def __init__(
        self, url: str | None = None, *, key: str | Callable[[], str] | None = None, tenant: str | None = None,
        headers: Mapping[str, str] | None = None, timeout: float = 60, retries: int = 4, insecure: bool = False,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._settings = Settings.of(url, key, tenant, headers, timeout, retries, insecure)
        self.caller: AsyncCaller = AsyncCaller(self._settings, http)
        self.api: AsyncApi = AsyncApi(self.caller)
        """Every operation of the API, as docs/openapi.json has it."""
        self.tools: Tools = Tools()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections."""
        await self.caller.close()

    def session(
        self, id: str | None = None, *, agent: str | types.AgentSpec | None = None, tools: Sequence[Tool[..., Any]] = (),
        variables: Mapping[str, Any] | None = None, metadata: Mapping[str, Any] | None = None, key: str | None = None,
    ) -> AsyncSession:
        """A session: the one with this id, or a new one, made with its first send.

        `agent` is a published one (`NAME`, `NAME@VERSION`, `NAME@ALIAS`) or what it is; `tools` of this process are
        added to the latter. With a `key` of yours it is the one session that has it, made if there is none."""
        new: types.NewSessionBody = {}
        if isinstance(agent, str):
            if tools:
                raise ValueError("a published agent has the tools that it was published with: publish their declaration()")
            new["agent"] = agent
        elif agent is not None or tools:
            spec: types.AgentSpec = {**agent} if agent else {}
            new["agent"] = spec
            if tools:
                spec["tools"] = [*spec.get("tools", ()), *(tool.declaration() for tool in tools)]
        if variables is not None:
            new["variables"] = variables
        if metadata is not None:
            new["metadata"] = metadata
        if key is not None:
            new["key"] = key
        return AsyncSession(self, id, new)

    @overload
    def send(self, id: str, *, output: None = None) -> AsyncSend[str]: ...

    @overload
    def send(self, id: str, *, output: type[T]) -> AsyncSend[T]: ...

    def send(self, id: str, *, output: Any = None) -> AsyncSend[Any]:
        """A send by its id, also one of another process."""
        return AsyncSend(self, id, output)

    async def send_all(self, sends: Iterable[types.BatchSend], *, key: str | None = None) -> list[AsyncSend[str] | ApiError]:
        """At most 1000 sends in one request: for each its handle, or why it was not accepted."""
        made = await self.api.create_sends({"sends": list(sends)}, key=key)
        return [
            AsyncSend(self, each.send.id, view=each.send) if each.send else error_from(each.problem)
            for each in made.results
        ]

    @overload
    async def run(
        self, workflow: Workflow | Mapping[str, Any], input: Any = None, *, output: None = None,
        session: AsyncSession | None = None, key: str | None = None, **options: Unpack[types.RunOptions],
    ) -> AsyncRun[Any]: ...

    @overload
    async def run(
        self, workflow: Workflow | Mapping[str, Any], input: Any = None, *, output: type[T],
        session: AsyncSession | None = None, key: str | None = None, **options: Unpack[types.RunOptions],
    ) -> AsyncRun[T]: ...

    async def run(
        self, workflow: Workflow | Mapping[str, Any], input: Any = None, *, output: Any = None,
        session: AsyncSession | None = None, key: str | None = None, **options: Unpack[types.RunOptions],
    ) -> AsyncRun[Any]:
        """Starts a workflow, one of `mainspring.flow` or a spec. A `session` is told its end."""
        body: types.NewRunBody = {"spec": spec_of(workflow)}
        if input is not None:
            body["input"] = input
        if options:
            body["options"] = options
        if session is not None:
            body["session_id"] = await session.open()
        return AsyncRun(self, (await self.api.create_run(body, key=key)).id, output)

    def run_by_id(self, id: str) -> AsyncRun[Any]:
        """A run by its id, also one of another process."""
        return AsyncRun(self, id)

    def timer(
        self, *, at: datetime | None = None, after: Duration | None = None, every: Duration | None = None,
        cron: str | None = None, timezone: str | None = None, until: datetime | None = None,
        max_occurrences: int | None = None, jitter: Duration | None = None, catch_up: types.CatchUp | None = None,
        key: str | None = None,
    ) -> AsyncNewTimer:
        """A schedule, for `.send(session, …)` or `.run(workflow, …)`."""
        given = {
            "at": at, "after": after, "every": every, "cron": cron, "timezone": timezone, "until": until,
            "max_occurrences": max_occurrences, "jitter": jitter, "catch_up": catch_up,
        }
        return AsyncNewTimer(self, {name: value for name, value in given.items() if value is not None}, key)

    def timer_by_id(self, id: str) -> AsyncTimer:
        """A timer by its id."""
        return AsyncTimer(self, id)

    async def questions(self) -> AsyncIterator[AsyncQuestion]:
        """What persons are asked in all sessions, the longest waiting first."""
        async for call in self.api.list_calls(waiting_on="human", limit=200):
            yield AsyncQuestion(self, call)

    @property
    def tool(self) -> Tools:
        """Decorates a function as a tool of this process: `@client.tool(repeat="safe")`."""
        return self.tools

    def serve(
        self, *tools: Tool[..., Any], concurrency: int = 32, lease: float = LEASE
    ) -> AsyncToolLoop:
        """A loop that makes the calls of these tools, of all that `client.tool` decorated if none is named.

        A call of a loop that died stays its own for `lease` seconds; see the README for what `repeat` promises then."""
        return AsyncToolLoop(self._settings, tools or tuple(self.tools), concurrency=concurrency, lease=lease)

    # What handles share.

    async def questions_of(self, session_id: str) -> list[AsyncQuestion]:
        return [
            AsyncQuestion(self, call)
            async for call in self.api.list_waiting_calls(session_id)
            if call.waiting_on == "human"
        ]

    async def wait_for(self, path: str, model: type[M], limit: Limit) -> M:
        """What is there at its end, or before, over restarts of the server."""
        call = Call("GET", path, as_model(model), query={"wait": f"{round(limit.left(POLL) * 1000)}ms"})
        try:
            return await self.caller.call(call, within=1 + limit.left(self._settings.timeout))
        except Unreachable as error:
            if limit.over:
                raise TimeoutError(f"{path} did not answer in time") from error
            raise


class AsyncNewTimer:
    """A schedule that does nothing yet."""

    def __init__(self, client: AsyncClient, body: dict[str, Any], key: str | None) -> None:
        self._client, self._body, self._key = client, body, key

    async def send(self, session: AsyncSession, input: Input, **options: Unpack[types.SendOptions]) -> AsyncTimer:
        """Sends this each time."""
        target: types.TimerBody = {"session_id": await session.open(), "input": input}
        if options:
            target["options"] = options
        return await self._made(target)

    async def run(
        self, workflow: Workflow | Mapping[str, Any], input: Any = None, **options: Unpack[types.RunOptions]
    ) -> AsyncTimer:
        """Starts this each time."""
        run: types.RunBody = {"spec": spec_of(workflow)}
        if input is not None:
            run["input"] = input
        if options:
            run["options"] = options
        return await self._made({"run": run})

    async def _made(self, target: types.TimerBody) -> AsyncTimer:
        body: types.TimerBody = {**target, **self._body}  # type: ignore[typeddict-item]
        view = await self._client.api.create_timer(body, key=self._key)
        return AsyncTimer(self._client, view.id, view.next)


def spec_of(workflow: Workflow | Mapping[str, Any]) -> Mapping[str, Any]:
    return workflow.spec() if isinstance(workflow, Workflow) else workflow
