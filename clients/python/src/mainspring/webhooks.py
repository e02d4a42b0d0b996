"""Webhooks: whether a message is from the server, and what it says. By the Standard Webhooks specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from . import types
from .errors import MainspringError


class InvalidSignature(MainspringError):
    """The message is not from the server, or too old: answer 400 and forget it."""


@dataclass(frozen=True)
class WebhookEvent:
    """A message. It may come more than once, with the same `id`."""

    id: str
    type: str
    timestamp: datetime
    """When it happened."""
    data: types.SendView | types.RunView | types.TimerView | dict[str, Any]
    """A send for `send.…`, a run for `run.…`, a timer for `timer.…`."""


def verify(
    body: bytes | str, headers: Mapping[str, str], secret: str | Sequence[str], *, tolerance: float = 300,
    now: float | None = None,
) -> WebhookEvent:
    """The message with this body and these headers, if it was signed with the secret, or one of them.

    `body` is what was received, to the byte: not JSON that was parsed and written again."""
    content = body.encode() if isinstance(body, str) else body
    given = {name.lower(): value for name, value in headers.items()}
    identity, sent, signatures = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not identity or not sent.isascii() or not sent.isdigit():
        raise InvalidSignature("the message is not signed")
    if abs((time.time() if now is None else now) - int(sent)) > tolerance:
        raise InvalidSignature("the message is too old, or from the future")
    signed = b".".join([identity.encode(), sent.encode(), content])
    secrets = [secret] if isinstance(secret, str) else secret
    if not any(_matches(signed, each, signatures) for each in secrets):
        raise InvalidSignature("no signature is of this secret")
    data = json.loads(content)
    return WebhookEvent(identity, data["type"], datetime.fromisoformat(data["timestamp"].replace("Z", "+00:00")), _shown(data))


def _matches(signed: bytes, secret: str, signatures: str) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    own = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    return any(hmac.compare_digest(own, each.encode()) for each in signatures.split())


def _shown(message: dict[str, Any]) -> types.SendView | types.RunView | types.TimerView | dict[str, Any]:
    data: dict[str, Any] = message["data"]
    match message["type"].split(".")[0]:
        case "send":
            return types.SendView.from_dict(data)
        case "run":
            return types.RunView.from_dict(data)
        case "timer":
            return types.TimerView.from_dict(data)
        case _:
            return data
