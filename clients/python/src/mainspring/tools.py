"""Tools of the caller's process, and the loop that makes their calls."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from . import types
from ._async.api import AsyncApi
from ._async.core import AsyncCaller
from ._decode import Duration, encode
from ._http import Settings, segment
from ._schema import arguments_of, parameters_of
from .errors import ApiError, Denied, Invalid, NotFound, Unreachable

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

P = ParamSpec("P")
R = TypeVar("R")
log: logging.Logger = logging.getLogger("mainspring.tools")

FOUND_PAUSE, IDLE_PAUSE = 0.1, 0.5
LOOKED_AT = 5.0
"""How long a send that waits for tools of others is not looked at again."""

UNKNOWN_OUTCOME = "tool.unknown_outcome: the process that made this call ended before it had a result; it may have been done"


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
        }

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def declaration(self) -> types.ExternalTool:
        """What an agent lists in its `tools`."""
        return self._declared

    async def result(self, call: types.WaitingCall, threads: ThreadPoolExecutor) -> types.ResultBody:
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


class Journal:
    """A folder that remembers which `once` calls were begun, over the death of a loop.

    All loops of one machine that share it never both make a call: a loop holds a lock on the file of a call that it
    makes, and finds there what one that died had come to."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        if fcntl is None:
            raise NotImplementedError("a journal needs the file locks of Unix")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def take(self, call_id: str) -> Entry | None:
        """What is known of a call, which nobody else takes meanwhile; None if another has it."""
        assert fcntl is not None
        path = self._folder / segment(call_id)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return None
            if os.fstat(file).st_nlink:
                return Entry(path, file)
            # Whoever had it is through with it, and removed it meanwhile.
            os.close(file)


class Entry:
    """What is known of one call."""

    def __init__(self, path: Path, file: int) -> None:
        self._path, self._file = path, file
        lines = path.read_bytes().split(b"\n")[:-1]
        self.begun: bool = bool(lines)
        self.result: types.ResultBody | None = json.loads(lines[1]) if len(lines) > 1 else None

    def begin(self) -> None:
        self._note(b"begun\n")
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def end(self, result: types.ResultBody) -> None:
        self._note(encode(result).encode() + b"\n")

    def _note(self, line: bytes) -> None:
        os.write(self._file, line)
        os.fsync(self._file)

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)

    def release(self) -> None:
        os.close(self._file)


class AsyncToolLoop:
    """Makes the waiting calls of some tools, wherever in the tenant they wait, and posts their results."""

    def __init__(
        self, settings: Settings, tools: Sequence[Tool[..., Any]], *, journal: str | PathLike[str] | Journal | None = None,
        concurrency: int = 32,
    ) -> None:
        self._settings = settings
        self._tools = {tool.name: tool for tool in tools}
        if not tools or len(self._tools) < len(tools):
            raise ValueError("a loop needs tools, each with a name of its own")
        once = [tool.name for tool in tools if tool.repeat == "once"]
        if once and journal is None:
            raise ValueError(
                f'{once[0]} has repeat="once": name a folder as the journal, in which the loop remembers over its own death'
                ' what it began, or say repeat="keyed" or "safe" if it may be done again'
            )
        self._journal = journal if isinstance(journal, Journal) or journal is None else Journal(journal)
        self._concurrency = concurrency
        self._stopped = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._making: dict[str, asyncio.Task[None]] = {}
        self._looked_at: dict[str, tuple[int, float]] = {}

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
        self._slots = asyncio.Semaphore(self._concurrency)
        caller = AsyncCaller(self._settings)
        try:
            with ThreadPoolExecutor(self._concurrency, "mainspring-tool") as self._threads:
                while not self._stopped:
                    found = await self._take(AsyncApi(caller))
                    await self._pause(FOUND_PAUSE if found or self._making else IDLE_PAUSE)
                await asyncio.gather(*self._making.values())
        finally:
            await caller.close()

    async def _take(self, api: AsyncApi) -> bool:
        """Begins to make what waits. The one place that decides which calls are this loop's: the server has no way yet
        to give a call to one loop only, so that two loops on two machines may both make one."""
        # Also those that are done with before the answer comes, which may be older than that.
        known = set(self._making)
        try:
            calls = [call for call in await self._waiting(api) if call.call_id not in known]
        except Denied as error:
            log.error("the loop ends: %s", error)
            raise
        except (ApiError, Unreachable) as error:
            log.warning("cannot look for calls: %s", error)
            await self._pause(1.0)
            return False
        for call in calls:
            self._making[call.call_id] = asyncio.create_task(self._make(api, call))
        return bool(calls)

    async def _waiting(self, api: AsyncApi) -> list[types.WaitingCall]:
        now = time.monotonic()
        waiting = [send async for send in api.list_sends(status="waiting", limit=200) if send.waiting_on == "tool"]
        looked_at = {send.id: self._looked_at[send.id] for send in waiting if send.id in self._looked_at}
        due = {send.id: send for send in waiting if looked_at.get(send.id, (-1, 0.0)) < (send.rounds, now)}
        found: list[types.WaitingCall] = []
        for session in dict.fromkeys(send.session_id for send in due.values()):
            found += await self._calls_of(api, session)
        ours = {call.send_id for call in found}
        self._looked_at = looked_at | {id: (send.rounds, now + LOOKED_AT) for id, send in due.items() if id not in ours}
        return list({call.call_id: call for call in found}.values())

    async def _calls_of(self, api: AsyncApi, session_id: str) -> list[types.WaitingCall]:
        try:
            calls = [call async for call in api.list_waiting_calls(session_id)]
        except NotFound:
            return []
        return [each for each in calls if each.wants == "answer" and each.waiting_on == "tool" and each.name in self._tools]

    async def _make(self, api: AsyncApi, call: types.WaitingCall) -> None:
        tool = self._tools[call.name]
        entry = None
        try:
            async with self._slots:
                if tool.repeat == "once" and self._journal:
                    entry = self._journal.take(call.call_id)
                    if entry is None:
                        return
                    # Another loop may have reported it since this one saw it wait.
                    if not any(each.call_id == call.call_id for each in await self._calls_of(api, call.session_id)):
                        entry.forget()
                        return
                result: types.ResultBody | None = entry.result if entry else None
                if result is None and entry and entry.begun:
                    result = {"call_id": call.call_id, "answers": "answer", "error": UNKNOWN_OUTCOME}
                if result is None:
                    if entry:
                        entry.begin()
                    result = await tool.result(call, self._threads)
                    if entry:
                        entry.end(result)
                if await self._report(api, call, result) and entry:
                    entry.forget()
        except Exception:
            log.exception("%s could not be made", call.call_id)
        finally:
            if entry:
                entry.release()
            del self._making[call.call_id]

    async def _report(self, api: AsyncApi, call: types.WaitingCall, result: types.ResultBody) -> bool:
        """Whether the server has the result, or nobody wants it any longer."""
        while True:
            try:
                posted = (await api.post_tool_results(call.session_id, {"results": [result]})).results[0].status
                if posted != "locked":
                    return True
            except NotFound:
                return True
            except Invalid as error:
                if "error" in result:
                    raise
                result = {"call_id": call.call_id, "answers": "answer", "error": f"the result was refused: {error.detail}"}
                continue
            except (ApiError, Unreachable) as error:
                log.warning("%s has a result that cannot be reported yet: %s", call.call_id, error)
                if self._stopped or isinstance(error, Denied):
                    return False
            await asyncio.sleep(1.0)

    async def _pause(self, seconds: float) -> None:
        # asyncio's own is another one before Python 3.11.
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)


class ToolLoop:
    """The same in a thread of its own, for the sync client. Functions are called in further threads."""

    def __init__(
        self, settings: Settings, tools: Sequence[Tool[..., Any]], *, journal: str | PathLike[str] | Journal | None = None,
        concurrency: int = 32,
    ) -> None:
        self._inner = AsyncToolLoop(settings, tools, journal=journal, concurrency=concurrency)
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
