"""Webhooks, against the vectors of the standard's own library where it is installed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import datetime, timezone

import pytest
from servers import COMPLETED

from mainspring import types, webhooks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1764075600
BODY = json.dumps({"type": "send.completed", "timestamp": "2025-11-25T13:00:00.120Z", "data": COMPLETED}).encode()


def signature(body: bytes = BODY, secret: str = SECRET, at: int = NOW) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.new(key, b"evt_1.%d.%s" % (at, body), hashlib.sha256).digest()).decode()


def headers(signatures: str, at: int = NOW) -> dict[str, str]:
    return {"Webhook-Id": "evt_1", "Webhook-Timestamp": str(at), "Webhook-Signature": signatures}


def test_a_message_of_the_server_is_read() -> None:
    event = webhooks.verify(BODY, headers(signature()), SECRET, now=NOW)
    assert (event.id, event.type) == ("evt_1", "send.completed")
    assert event.timestamp == datetime(2025, 11, 25, 13, 0, 0, 120000, tzinfo=timezone.utc)
    assert isinstance(event.data, types.SendView) and event.data.output_text == "hello"


def test_one_of_two_secrets_and_one_of_two_signatures_is_enough() -> None:
    other = "whsec_" + base64.b64encode(b"another secret").decode()
    both = headers(signature(secret=other) + " " + signature() + " v2,what")
    assert webhooks.verify(BODY, both, SECRET, now=NOW).id == "evt_1"
    assert webhooks.verify(BODY, headers(signature(secret=other)), [SECRET, other], now=NOW).id == "evt_1"


@pytest.mark.parametrize(
    ("body", "given", "now"),
    [
        (BODY + b" ", headers(signature()), NOW),
        (BODY, headers(signature(), at=NOW + 1), NOW),
        (BODY, headers(signature()), NOW + 301),
        (BODY, headers(signature()), NOW - 301),
        (BODY, headers(""), NOW),
        (BODY, headers("v1,"), NOW),
        (BODY, {}, NOW),
        (BODY, headers(signature()) | {"Webhook-Timestamp": "soon"}, NOW),
    ],
)
def test_any_other_message_is_refused(body: bytes, given: dict[str, str], now: int) -> None:
    with pytest.raises(webhooks.InvalidSignature):
        webhooks.verify(body, given, SECRET, now=now)


def test_it_agrees_with_the_library_of_the_standard() -> None:
    standard = pytest.importorskip("standardwebhooks")
    at = datetime.now(timezone.utc)
    made = standard.Webhook(SECRET).sign("evt_1", at, BODY.decode())
    assert webhooks.verify(BODY, headers(made, int(at.timestamp())), SECRET).id == "evt_1"
