"""Uses a client that openapi-python-client made of the server's own description.

Arguments: the server's address. The package `mainspring_client` has to be importable.
"""

import sys
import time

from mainspring_client import Client
from mainspring_client.api.runs import create_run, get_run
from mainspring_client.api.sends import create_send, get_send, list_sends
from mainspring_client.api.sessions import (
    create_session,
    get_session,
    list_inbox,
    list_messages,
    list_waiting_calls,
    post_tool_results,
)
from mainspring_client.api.timers import create_timer, list_timers
from mainspring_client.models import (
    AgentSpec,
    ExternalTool,
    NewRunBody,
    NewSessionBody,
    ResultBody,
    ResultsBody,
    SendAnywhereBody,
    SendOptions,
    SendStatus,
    TimerBody,
)


def of(response, *statuses):
    assert int(response.status_code) in statuses, (response.status_code, response.content)
    assert response.parsed is not None, response.content
    return response.parsed


client = Client(base_url=sys.argv[1])

# A session with a tool that this program runs.
tool = ExternalTool(type_="external", name="weather", description="The weather.")
agent = AgentSpec(system_prompt="Be brief.", tools=["core", tool])
session = of(create_session.sync_detailed(client=client, body=NewSessionBody(agent=agent)), 201)
assert session.agent.tools[0] == "core", session.agent.tools
assert session.agent.tools[1].name == "weather", session.agent.tools
assert of(get_session.sync_detailed(session.id, client=client), 200).id == session.id

# A send that asks for it, and its result.
body = SendAnywhereBody(input_='!tool weather {"place": "Potsdam"}', session_id=session.id)
send = of(create_send.sync_detailed(client=client, body=body, wait="2s"), 200, 202)
until = time.monotonic() + 30
while not (waiting := of(list_waiting_calls.sync_detailed(session.id, client=client), 200).data):
    assert time.monotonic() < until, "the call does not come"
assert waiting[0].arguments == {"place": "Potsdam"}, waiting
results = ResultsBody(results=[ResultBody(call_id=waiting[0].call_id, output=["sun", 21])])
posted = of(post_tool_results.sync_detailed(session.id, client=client, body=results), 200)
assert posted.results[0].status == "accepted", posted
send = of(get_send.sync_detailed(send.id, client=client, wait="30s"), 200)
assert send.status == SendStatus.COMPLETED, send
messages = of(list_messages.sync_detailed(session.id, client=client, limit=50), 200).data
assert [message.role for message in messages][0] == "user", messages
assert messages[0].content[0].text.startswith("!tool"), messages

# Any JSON as an answer.
options = SendOptions(output_schema={"type": "array", "items": {"type": "string"}, "minItems": 2})
body = SendAnywhereBody(input_="colours", options=options)
shaped = of(create_send.sync_detailed(client=client, body=body, wait="30s"), 200)
assert isinstance(shaped.output, list), shaped

# Words for a busy session, in its inbox.
slow = of(create_send.sync_detailed(
    client=client, body=SendAnywhereBody(input_="!sleep 2s", session_id=session.id)), 202)
until = time.monotonic() + 30
while of(get_send.sync_detailed(slow.id, client=client), 200).status != SendStatus.RUNNING:
    assert time.monotonic() < until, "the send does not start"
steer = SendAnywhereBody(input_="more", session_id=session.id, options=SendOptions(on_busy="steer"))
of(create_send.sync_detailed(client=client, body=steer), 202)
inbox = of(list_inbox.sync_detailed(session.id, client=client), 200).data
assert inbox[-1].fate in ("pending", "delivered"), inbox
of(get_send.sync_detailed(slow.id, client=client, wait="30s"), 200)
assert len(of(list_sends.sync_detailed(client=client, status=SendStatus.COMPLETED), 200).data) >= 3

# A run with a text as its input, and a timer.
brewer = {"name": "brewer", "system_prompt": "Make tea.", "tools": []}
spec = {"name": "tea", "root": {"type": "agent", "id": "ask", "spec": brewer, "input": "{{input}}"}}
run = of(create_run.sync_detailed(client=client, body=NewRunBody(spec=spec, input_="tea"), wait="30s"), 200)
assert run.input_ == "tea" and run.status == "completed", run
assert of(get_run.sync_detailed(run.id, client=client), 200).result is not None
of(create_timer.sync_detailed(
    client=client, body=TimerBody(session_id=session.id, after="1h", input_="later")), 201)
timers = of(list_timers.sync_detailed(client=client, session_id=session.id), 200).data
assert timers[0].input_[0].text == "later", timers
print("python: ok")
