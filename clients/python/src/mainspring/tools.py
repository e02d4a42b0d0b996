"""Tools of the caller's process, and the loop that makes their calls."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import logging
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

from . import types
from ._async.api import AsyncApi
from ._async.core import AsyncCaller
from ._decode import Duration, encode
from ._http import Settings
from ._schema import arguments_of, parameters_of
from .errors import ApiError, Denied, Invalid, NotFound, Unreachable

P = ParamSpec("P")
R = TypeVar("R")
log: logging.Logger = logging.getLogger("mainspring.tools")

LEASE = 30.0
"""How long a call stays claimed after its loop died, in seconds."""

LOOK = "2s"
"""How long one request waits for calls, and `stop` at most for its response."""

CLAIMED_MAX = 100


class Tool(Generic[P, R]):
    """A function that models may call. It can still be called as a function."""

    def __init__(
        self, function: Callable[P, R], *, repeat: types.Repeat = "once", approval: bool = False,
        deadline: Duration | None = None, name: str | None = None, description: str | None = None,
    ) -> None:
        self.function: Callable[P, R] = function
        self.repeat: types.Repeat = repeat
        self.name: str = name or function.__name__
        self._context = {"call"} & set(inspect.signature(function).parameters)
        self._declared: types.ExternalTool = {
            "type": "external", "name": self.name, "parameters": parameters_of(function, self._context),
            "description": description or inspect.getdoc(function) or "", "approval": approval, "deadline": deadline,
            "repeat": repeat,
        }

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def declaration(self) -> types.ExternalTool:
        """What an agent lists in its `tools`."""
        return self._declared

    async def result(self, call: types.CallToMake, threads: ThreadPoolExecutor) -> types.ResultBody:
        """Makes a call: its outcome as it is posted. An exception is its error, of which the model reads the text."""
        result: types.ResultBody = {"call_id": call.call_id, "answers": "answer"}
        try:
            arguments = arguments_of(self.function, call.arguments, self._context)
            if self._context:
                arguments["call"] = call
            function: Any = self.function
            if inspect.iscoroutinefunction(function):
                value = await function(**arguments)
            else:
                context = contextvars.copy_context()
                value = await asyncio.get_running_loop().run_in_executor(threads, lambda: context.run(function, **arguments))
            result["output"] = json.loads(encode(value))
        except Exception as error:
            log.warning("%s failed", call.call_id, exc_info=error)
            result["error"] = str(error) or type(error).__name__
        return result


def held(call: types.CallToMake) -> types.HeldClaim:
    """Names a call together with its claim."""
    return {"call_id": call.call_id, "claim": call.claim}


class Tools:
    """Decorates functions as tools, and keeps them."""

    def __init__(self) -> None:
        self._tools: list[Tool[..., Any]] = []

    def __call__(
        self, *, repeat: types.Repeat = "once", approval: bool = False, deadline: Duration | None = None,
        name: str | None = None, description: str | None = None,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]:
        """The function's docstring is what the model reads, its arguments' types are the schema. An argument `call` is
        the call itself, whose `call_id` is the same however often the call is made."""

        def decorate(function: Callable[P, R]) -> Tool[P, R]:
            made = Tool(function, repeat=repeat, approval=approval, deadline=deadline, name=name, description=description)
            self._tools.append(made)
            return made

        return decorate

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools)


class AsyncToolLoop:
    """Makes the calls of some tools, wherever in the tenant they wait. Of several loops that have a tool, on any machines,
    one gets each call: it claims the call, renews the claim while the function runs, and reports the result with it."""

    def __init__(
        self, settings: Settings, tools: Sequence[Tool[..., Any]], *, concurrency: int = 32, lease: float = LEASE,
    ) -> None:
        self._settings = settings
        self._tools = {tool.name: tool for tool in tools}
        if not tools or len(self._tools) < len(tools):
            raise ValueError("a loop needs tools, each with a name of its own")
        if not 1 <= lease <= 3600:
            raise ValueError("a lease is from 1 to 3600 seconds")
        self._concurrency, self._lease, self._lasting = concurrency, lease, f"{round(lease * 1000)}ms"
        self._stopped = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._making: dict[str, types.CallToMake] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # A request whose response is lost is repeated with its key, and gets the calls that it got.
        self._key = str(uuid.uuid4())

    async def __aenter__(self) -> AsyncToolLoop:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.stop()
        if self._task:
            await self._task

    def stop(self) -> None:
        """Takes no more calls; those under way are finished and reported. From any thread."""
        self._stopped = True
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run_forever(self) -> None:
        """Until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        await self.run()

    async def run(self) -> None:
        """Until `stop`. Only a key that is not accepted ends it otherwise."""
        self._loop = asyncio.get_running_loop()
        caller = AsyncCaller(self._settings)
        api = AsyncApi(caller)
        renewing = asyncio.create_task(self._renew(api))
        try:
            with ThreadPoolExecutor(self._concurrency, "mainspring-tool") as self._threads:
                try:
                    while not self._stopped:
                        await self._take(api)
                finally:
                    await asyncio.gather(*self._tasks)
        finally:
            renewing.cancel()
            await caller.close()

    async def _take(self, api: AsyncApi) -> None:
        """Claims calls and begins to make them."""
        room = self._concurrency - len(self._tasks)
        if room <= 0:
            await asyncio.wait(self._tasks, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
            return
        body: types.ClaimBody = {"names": sorted(self._tools), "limit": min(room, CLAIMED_MAX), "lease": self._lasting}
        try:
            # It is not broken off: the server may have given calls to it already.
            calls = (await api.claim_calls(body, wait=LOOK, key=self._key)).calls
        except Denied as error:
            log.error("the loop ends: %s", error)
            raise
        except (ApiError, Unreachable) as error:
            log.warning("cannot look for calls: %s", error)
            await self._pause(1.0)
            return
        self._key = str(uuid.uuid4())
        if self._stopped:
            await self._give_back(api, calls)
            return
        for call in calls:
            is_under_way = call.call_id in self._making
            self._making[call.call_id] = call
            if is_under_way:
                # Its claim had lapsed. What already runs is reported with the new one.
                continue
            task = asyncio.create_task(self._make(api, call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, api: AsyncApi, calls: list[types.CallToMake]) -> None:
        if calls:
            try:
                await api.release_claims({"claims": [held(call) for call in calls]})
            except (ApiError, Unreachable) as error:
                log.warning("%d calls stay claimed for %s s: %s", len(calls), self._lease, error)

    async def _renew(self, api: AsyncApi) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            claims = [held(call) for call in self._making.values()]
            for at in range(0, len(claims), CLAIMED_MAX):
                try:
                    told = await api.renew_claims({"claims": claims[at : at + CLAIMED_MAX], "lease": self._lasting})
                except (ApiError, Unreachable) as error:
                    log.warning("cannot renew claims: %s", error)
                    break
                for claim in told.claims:
                    if claim.status == "lost" and claim.call_id in self._making:
                        log.warning("%s was given to another loop", claim.call_id)

    async def _make(self, api: AsyncApi, call: types.CallToMake) -> None:
        try:
            await self._report(api, call, await self._tools[call.name].result(call, self._threads))
        except Exception:
            log.exception("%s could not be made", call.call_id)
        finally:
            self._making.pop(call.call_id, None)

    async def _report(self, api: AsyncApi, call: types.CallToMake, result: types.ResultBody) -> None:
        """Until the server has the result, or nobody wants it any longer."""
        while True:
            claim = self._making[call.call_id].claim
            result["claim"] = claim
            try:
                posted = (await api.post_tool_results(call.session_id, {"results": [result]})).results[0].status
                if posted == "claim_lost" and claim != self._making[call.call_id].claim:
                    continue
                if posted == "claim_lost":
                    log.warning("the result of %s came too late: another loop has it", call.call_id)
                if posted != "locked":
                    return
            except NotFound:
                return
            except Invalid as error:
                if "error" in result:
                    raise
                error_text = f"the result was refused: {error.detail}"
                result = {"call_id": call.call_id, "answers": "answer", "error": error_text}
                continue
            except (ApiError, Unreachable) as error:
                log.warning("%s has a result that cannot be reported yet: %s", call.call_id, error)
                if self._stopped or isinstance(error, Denied):
                    return
            await asyncio.sleep(1.0)

    async def _pause(self, seconds: float) -> None:
        # asyncio's own is another one before Python 3.11.
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)


class ToolLoop:
    """The same in a thread of its own, for the sync client. Functions are called in further threads."""

    def __init__(
        self, settings: Settings, tools: Sequence[Tool[..., Any]], *, concurrency: int = 32, lease: float = LEASE,
    ) -> None:
        self._inner = AsyncToolLoop(settings, tools, concurrency=concurrency, lease=lease)
        self._thread = threading.Thread(target=self._run, name="mainspring-tools", daemon=True)
        self._error: BaseException | None = None

    def _run(self) -> None:
        try:
            asyncio.run(self._inner.run())
        except BaseException as error:
            self._error = error

    def __enter__(self) -> ToolLoop:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._thread.join()
        if self._error and not any(error):
            raise self._error

    def stop(self) -> None:
        """Takes no more calls; those under way are finished and reported."""
        self._inner.stop()

    def run_forever(self) -> None:
        """Until SIGTERM or SIGINT. From the main thread."""
        done = threading.Event()
        before = {number: signal.signal(number, lambda *_: done.set()) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with self:
                while self._thread.is_alive() and not done.wait(0.2):
                    pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
