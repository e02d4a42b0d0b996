"""Uses the server with the reference client of A2A for Python, unmodified. Argument: the server's address."""

import asyncio
import json
import sys
import urllib.request

import httpx
from a2a.client import ClientConfig, ClientFactory, A2ACardResolver
from a2a.helpers import get_artifact_text, new_text_message
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

SERVER = sys.argv[1]
FORM = '!tool ask_person {"question": "Which one?", "kind": "choice", "options": ["red", "blue"]}'


def publish(name, spec):
    body = json.dumps({"name": name, "spec": spec}).encode()
    head = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{SERVER}/v1/agents", body, head)).read()


def says(text, context="", task="", at_once=False):
    message = new_text_message(text, context_id=context or None, task_id=task or None, role=Role.ROLE_USER)
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=at_once))


async def last_task(client, request):
    """Sends a message, and gathers what comes back into a task."""
    task = None
    async for response in client.send_message(request):
        kind = response.WhichOneof("payload")
        if kind == "task":
            task = response.task
        elif kind == "status_update":
            task.status.CopyFrom(response.status_update.status)
        elif kind == "artifact_update":
            update = response.artifact_update
            if update.append:
                task.artifacts[0].parts.extend(update.artifact.parts)
            else:
                del task.artifacts[:]
                task.artifacts.append(update.artifact)
    return task


async def refused(kind, call):
    try:
        await call
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


async def use(binding, streaming):
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, f"{SERVER}/a2a/a2a-echo").get_agent_card()
        assert card.name == "a2a-echo" and card.capabilities.streaming, card
        assert not card.capabilities.push_notifications, card
        config = ClientConfig(httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding])
        client = ClientFactory(config).create(card)

        task = await last_task(client, says("one two three !stream 3x10ms"))
        assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
        answer = get_artifact_text(task.artifacts[0])
        assert answer, task
        read = await client.get_task(GetTaskRequest(id=task.id))
        assert get_artifact_text(read.artifacts[0]) == answer, (read, answer)
        assert [message.role for message in read.history] == [Role.ROLE_USER, Role.ROLE_AGENT], read

        more = await last_task(client, says("more", context=task.context_id))
        assert more.context_id == task.context_id and more.id != task.id, more
        listed = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
        assert [one.id for one in listed.tasks] == [more.id, task.id], listed

        asked = await last_task(client, says(FORM))
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, asked
        assert asked.status.message.parts[0].text == "Which one?", asked
        schema = asked.status.message.parts[1].data.struct_value["schema"]
        assert list(schema["properties"]["answer"]["enum"]) == ["red", "blue"], asked
        answered = await last_task(client, says("blue", task=asked.id, context=asked.context_id))
        answered = await ended(client, answered.id)
        assert answered.status.state == TaskState.TASK_STATE_COMPLETED, answered
        assert "blue" in get_artifact_text(answered.artifacts[0]), answered

        slow = await first(client, says(f"slow {binding} {streaming} !sleep 60s", at_once=True))
        cancelled = await client.cancel_task(CancelTaskRequest(id=slow.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED, cancelled
        await refused(TaskNotCancelableError, client.cancel_task(CancelTaskRequest(id=task.id)))

        if streaming:
            # The client itself refuses without.
            later = await first(client, says(f"later {binding} !sleep 500ms", at_once=True))
            states = [response async for response in client.subscribe(SubscribeToTaskRequest(id=later.id))]
            assert states[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED, states
            late = client.subscribe(SubscribeToTaskRequest(id=later.id))
            await refused(UnsupportedOperationError, anext(late))

        await refused(TaskNotFoundError, client.get_task(GetTaskRequest(id="snd_" + 32 * "0")))
        push = TaskPushNotificationConfig(task_id=task.id, url="https://example.com/")
        await refused(PushNotificationNotSupportedError, push_refused(client, push))

        card = await A2ACardResolver(http, f"{SERVER}/a2a/a2a-form").get_agent_card()
        form = ClientFactory(config).create(card)
        filled = await last_task(form, says("fill it in"))
        data = [part.data for part in filled.artifacts[0].parts if part.HasField("data")]
        assert data[0].struct_value["n"] == int(data[0].struct_value["n"]), filled


async def push_refused(client, push):
    # The client itself refuses what the card does not have, unless its transport is asked.
    await client._transport.create_task_push_notification_config(push)


async def first(client, request):
    async for response in client.send_message(request):
        return response.task


async def ended(client, id):
    while True:
        task = await client.get_task(GetTaskRequest(id=id))
        if task.status.state not in (TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_SUBMITTED):
            return task
        await asyncio.sleep(0.05)


async def main():
    publish("a2a-echo", {"model": "demo", "tools": ["ask_person"]})
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    publish("a2a-form", {"model": "demo", "output_schema": schema})
    for binding in ["JSONRPC", "HTTP+JSON"]:
        for streaming in [True, False]:
            await use(binding, streaming)


asyncio.run(main())
