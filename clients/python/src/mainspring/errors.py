"""What goes wrong, by kind."""

from __future__ import annotations

from typing import Any

from . import types


class MainspringError(Exception):
    """The base of all errors of this package."""


class ApiError(MainspringError):
    """The server refused a request. `code` is stable; `detail` is for people."""

    def __init__(self, problem: types.Problem, *, request_id: str | None = None) -> None:
        self.problem: types.Problem = problem
        self.code: types.Code | str = problem.code
        self.status: int = problem.status
        self.detail: str = problem.detail
        self.errors: list[types.FieldError] = problem.errors or []
        """The members that are invalid, with a JSON pointer each."""
        self.retryable: bool = problem.retryable
        self.request_id: str | None = request_id
        """Name it when you ask those who run the server."""
        super().__init__(f"{problem.code}: {problem.detail}")

    def __reduce__(self) -> Any:
        return _again, (type(self), self.problem, self.request_id)


class Invalid(ApiError):
    """The request is wrong: 400, 413, 415, 422."""


class Denied(ApiError):
    """The key is missing, not accepted, or has no right to do this: 401, 403."""


class NotFound(ApiError):
    """There is nothing with this id: 404, 410."""


class Conflict(ApiError):
    """The state of something does not allow it now: 409."""


class Limited(ApiError):
    """A limit is still reached after all retries: 402, 408, 429."""


class Unavailable(ApiError):
    """The server cannot do it, also after all retries: 5xx."""


class Unexpected(ApiError):
    """Not an answer of this API: most likely of a proxy, or of another server at this address."""


class Unreachable(MainspringError):
    """No answer, after all retries."""


class SendFailed(MainspringError):
    """The send ended as `failed`: `code` says why, `send` is the whole of it."""

    def __init__(self, send: types.SendView) -> None:
        self.send: types.SendView = send
        self.code: types.Code | str = send.error.code if send.error else "internal"
        super().__init__(f"{send.id} failed with {self.code}: {send.error.message if send.error else 'no reason given'}")


class SendCancelled(MainspringError):
    """The send ended as `cancelled`."""

    def __init__(self, send: types.SendView) -> None:
        self.send: types.SendView = send
        super().__init__(f"{send.id} was cancelled")


class RunFailed(MainspringError):
    """The run ended as `failed`: the nodes with the state `failed` say where."""

    def __init__(self, run: types.RunView) -> None:
        self.run: types.RunView = run
        self.code: types.Code | str = run.error.code if run.error else "internal"
        super().__init__(f"{run.id} failed with {self.code}: {run.error.message if run.error else 'no reason given'}")


class RunCancelled(MainspringError):
    """The run ended as `cancelled`."""

    def __init__(self, run: types.RunView) -> None:
        self.run: types.RunView = run
        super().__init__(f"{run.id} was cancelled")


class Mismatch(MainspringError, ValueError):
    """A value does not fit its type: an answer its `output`, or arguments their tool."""

    def __init__(self, pointer: str, detail: str) -> None:
        self.pointer: str = pointer
        super().__init__(f"{pointer or 'the value'}: {detail}")


def _again(kind: type[ApiError], problem: types.Problem, request_id: str | None) -> ApiError:
    return kind(problem, request_id=request_id)


def kind(status: int) -> type[ApiError]:
    named: dict[int, type[ApiError]] = {
        401: Denied, 403: Denied, 404: NotFound, 410: NotFound, 409: Conflict, 402: Limited, 408: Limited, 429: Limited,
    }
    return named.get(status, Unavailable if status >= 500 else Invalid if status >= 400 else Unexpected)
