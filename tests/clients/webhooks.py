"""Receives webhooks of a real server, as its tenants do: verified with `standardwebhooks`.

Arguments: the server's address. The package `mainspring_client` has to be importable.
"""

import contextlib
import http.server
import queue
import sys
import threading
from datetime import datetime, timedelta
from unittest import mock

from mainspring_client import Client
from mainspring_client.api.operations import (
    create_webhook,
    list_webhook_deliveries,
    redeliver_webhook,
    rotate_webhook,
)
from mainspring_client.api.runs import create_run
from mainspring_client.api.sends import create_send
from mainspring_client.models import (
    NewRunBody,
    NewWebhookBody,
    RotateWebhookBody,
    SendAnywhereBody,
    SendStatus,
)
from standardwebhooks import Webhook, WebhookVerificationError

# What the tenants of a country write: signatures are of bytes, not of characters.
INPUT = "Grüße aus Köln, 東京 🎉"

BROUGHT = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
FOREIGN = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def of(response, *statuses):
    assert int(response.status_code) in statuses, (response.status_code, response.content)
    assert response.parsed is not None, response.content
    return response.parsed


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Takes every message; whether it is a true one is decided where it is used."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.arrived.put((dict(self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def endpoint():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.arrived = queue.Queue()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.arrived, f"http://127.0.0.1:{server.server_port}/hook"


@contextlib.contextmanager
def later(by):
    """Has the library believe that so much time has gone by."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz=tz) + by

    with mock.patch("standardwebhooks.webhooks.datetime", Clock):
        yield


def refused(why, secret, headers, body):
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"it was taken, which should have been refused: {why}")


def message(arrived, secret, kind, of_id):
    """The next message of this kind about this send or run. Whatever arrives is signed, others too."""
    while True:
        headers, body = arrived.get(timeout=30)
        event = Webhook(secret).verify(body, headers)
        assert headers["webhook-id"].startswith("evt_"), headers
        if (event["type"], event["data"]["id"]) == (kind, of_id):
            return headers, body, event


def signatures(headers):
    return headers["webhook-signature"].split(" ")


def is_refused_when_changed(secret, headers, body):
    unsigned = "No matching signature found"
    assert b'"completed"' in body, body
    refused(unsigned, secret, headers, body.replace(b'"completed"', b'"cancelled"'))
    refused(unsigned, secret, headers, body + b" ")
    other = str(int(headers["webhook-timestamp"]) + 1)
    refused(unsigned, secret, {**headers, "webhook-timestamp": other}, body)
    refused(unsigned, secret, {**headers, "webhook-id": "evt_" + "0" * 32}, body)
    refused(unsigned, FOREIGN, headers, body)


client = Client(base_url=sys.argv[1])


def said():
    body = SendAnywhereBody(input_=INPUT)
    send = of(create_send.sync_detailed(client=client, body=body, wait="30s"), 200)
    assert send.status == SendStatus.COMPLETED, send
    return send


# A message, and what was done to it on its way.
arrived, url = endpoint()
body = NewWebhookBody(url=url, events=["send.*"])
webhook = of(create_webhook.sync_detailed(client=client, body=body), 201)
send = said()
first, first_body, event = message(arrived, webhook.secret, "send.completed", send.id)
assert event["data"]["output_text"] == send.output_text, event
assert "東京 🎉" in send.output_text, send
assert len(signatures(first)) == 1, first
is_refused_when_changed(webhook.secret, first, first_body)

# A message that somebody kept, to send it again.
with later(timedelta(minutes=4)):
    Webhook(webhook.secret).verify(first_body, first)
with later(timedelta(minutes=6)):
    refused("Message timestamp too old", webhook.secret, first, first_body)
with later(timedelta(minutes=-6)):
    refused("Message timestamp too new", webhook.secret, first, first_body)

# While two secrets overlap, either one verifies.
second = of(rotate_webhook.sync_detailed(webhook.id, client=client), 200)
assert second.secret != webhook.secret, second
headers, body, _ = message(arrived, second.secret, "send.completed", said().id)
assert len(signatures(headers)) == 2, headers
for secret in [webhook.secret, second.secret]:
    Webhook(secret).verify(body, headers)
    is_refused_when_changed(secret, headers, body)

# Afterwards, only the new one does.
third = of(rotate_webhook.sync_detailed(webhook.id, client=client, body=RotateWebhookBody(overlap="0s")), 200)
headers, body, _ = message(arrived, third.secret, "send.completed", said().id)
assert len(signatures(headers)) == 1, headers
for secret in [webhook.secret, second.secret]:
    refused("No matching signature found", secret, headers, body)

# The first message once more: the same id, the same bytes, signed by what signs now.
deliveries = of(list_webhook_deliveries.sync_detailed(webhook.id, client=client), 200).data
assert first["webhook-id"] in [delivery.id for delivery in deliveries], deliveries
of(redeliver_webhook.sync_detailed(webhook.id, first["webhook-id"], client=client), 202)
again, again_body, _ = message(arrived, third.secret, "send.completed", send.id)
assert again["webhook-id"] == first["webhook-id"] and again_body == first_body, (again, again_body)
refused("No matching signature found", webhook.secret, again, again_body)

# The end of a run, under a secret that the tenant brought.
arrived, url = endpoint()
body = NewWebhookBody(url=url, events=["run.completed"], secret=BROUGHT)
of(create_webhook.sync_detailed(client=client, body=body), 201)
brewer = {"name": "brewer", "system_prompt": "Make tea.", "tools": []}
spec = {"name": "tea", "root": {"type": "agent", "id": "ask", "spec": brewer, "input": "{{input}}"}}
run = of(create_run.sync_detailed(client=client, body=NewRunBody(spec=spec, input_=INPUT), wait="30s"), 200)
headers, body, event = message(arrived, BROUGHT, "run.completed", run.id)
assert event["data"]["input"] == INPUT, event
is_refused_when_changed(BROUGHT, headers, body)
print("python webhooks: ok")
