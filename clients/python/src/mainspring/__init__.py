"""A client of Mainspring: LLM agents as durable, distributed work."""

from . import flow, types, webhooks
from ._answers import Answer, RunAnswer
from ._async.client import AsyncClient, AsyncNewTimer
from ._async.core import AsyncPages
from ._async.handles import AsyncQuestion, AsyncRun, AsyncSend, AsyncSession, AsyncStream, AsyncTimer, AsyncWaiting
from ._decode import Duration
from ._events import TextPiece
from ._http import Page
from ._sync.client import Client, NewTimer
from ._sync.core import Pages
from ._sync.handles import Question, Run, Send, Session, Stream, Timer, Waiting
from .errors import (
    ApiError,
    Conflict,
    Denied,
    Invalid,
    Limited,
    MainspringError,
    Mismatch,
    NotFound,
    RunCancelled,
    RunFailed,
    SendCancelled,
    SendFailed,
    Unavailable,
    Unexpected,
    Unreachable,
)
from .tools import AsyncToolLoop, Tool, ToolLoop
from .types import VERSION as __version__

__all__ = [
    "Answer", "ApiError", "AsyncClient", "AsyncNewTimer", "AsyncPages", "AsyncQuestion", "AsyncRun", "AsyncSend",
    "AsyncSession", "AsyncStream", "AsyncTimer", "AsyncToolLoop", "AsyncWaiting", "Client", "Conflict", "Denied",
    "Duration", "Invalid", "Limited", "MainspringError", "Mismatch", "NewTimer", "NotFound", "Page", "Pages",
    "Question", "Run", "RunAnswer", "RunCancelled", "RunFailed", "Send", "SendCancelled", "SendFailed", "Session",
    "Stream", "TextPiece", "Timer", "Tool", "ToolLoop", "Unavailable", "Unexpected", "Unreachable", "Waiting",
    "__version__", "flow", "types", "webhooks",
]
