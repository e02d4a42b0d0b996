"""Fills a database by way of the library itself, and writes down what is in it, in the words of Mainspring.

    make_power_loop.py ADDRESS EXPECTED.json [TABLE_PREFIX]
"""

import asyncio
import base64
import inspect
import json
import sys

from power_loop import AgentLoopConfig, LLMResponse, LLMService, StatefulAgentLoop
from power_loop.runtime.compact import DefaultCompactor
from power_loop.tools import create_default_tool_registry
from power_loop import ToolDefinition

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 64).decode()
SESSIONS = 12


def call(id, name, **arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class Scripted(LLMService):
    """Says one thing after another; a text or a list of calls."""

    def __init__(self):
        self.script = []

    async def complete(self, request, **_):
        said = self.script.pop(0) if self.script else "a summary"
        if isinstance(said, str):
            return LLMResponse(raw_text=said, content_text=said)
        return LLMResponse(raw_text="", content_text="", tool_calls=said)

    def stream(self, request):
        raise NotImplementedError

    async def close(self):
        pass


async def now(value):
    """The library's store is synchronous in 1.x, and asynchronous later."""
    return await value if inspect.isawaitable(value) else value


def registry():
    tools = create_default_tool_registry(include=["todo", "request_user_input"], workspace_dir="/tmp")
    place = {"type": "object", "properties": {"place": {"type": "string"}}}

    def look(place):
        if place == "nowhere":
            raise ValueError("there is no such place")
        return f"{place}: 雨 ☔"

    tools.register(ToolDefinition("look", "Looks", place), look)
    return tools


async def fill(loop, llm):
    """One session with everything, several with what is odd, and plain ones."""
    ids = []

    async def session(**about):
        ids.append(await now(loop.new_session(**about)))
        return ids[-1]

    async def send(id, said, *script):
        llm.script = list(script)
        return await loop.send(said, id)

    store = loop.store
    if inspect.iscoroutinefunction(getattr(loop, "_ensure_store", None)):
        store = await loop._ensure_store()

    everything = await session(metadata={"team": "blue", "n": 3}, system_prompt="Be brief.")
    # The ids of calls repeat, as those of some models do.
    await send(everything, "weather?", [call("call_0", "look", place="Ulm"), call("call_1", "look", place="nowhere")],
               [call("call_0", "look", place="Bonn")], "It rains.")
    await send(everything, {"role": "user", "content": [
        {"type": "text", "text": "and here?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]}, "A picture.")
    await send(everything, "plan", [call("t", "todo", items=[
        {"id": "1", "text": "look", "status": "completed"}, {"id": "2", "text": "tell", "status": "in_progress"}])], "Planned.")
    await now(store.add_note(everything, "likes rain", pinned=True))
    note = await now(store.add_note(everything, "wrong"))
    await now(store.delete_note(everything, note.note_id))
    await now(store.add_note(everything, "lives in Ulm"))
    far = 4_000_000_000_000
    await now(store.create_timer(everything, due_at=far, note="look again"))
    await now(store.create_timer(everything, due_at=far, note="every hour", interval_s=3600))
    gone = await now(store.create_timer(everything, due_at=far, note="never"))
    await now(store.transition_timer(everything, gone.timer_id, from_status="armed", to_status="cancelled"))

    asking = await session()
    await send(asking, "book", [call("a", "look", place="Ulm"), call("b", "request_user_input", prompt="Which day?")])

    answered = await session()
    waiting = await send(answered, "book", [call("b", "request_user_input", prompt="Which day?")])
    llm.script = ["Booked."]
    await loop.submit_input(answered, waiting.pending_interactions[0]["interaction_id"], "Monday")

    folded = await session()
    for n in range(6):
        await send(folded, f"question {n} " + "word " * 400, f"answer {n} " + "word " * 400)

    archived = await session()
    await send(archived, "bye", "Bye.")
    await now(store.archive_session(archived))

    child = await now(store.create_session(parent_session_id=everything, system_prompt="A child."))
    ids.append(child)
    await send(child, "help", "Helped.")

    for n in range(SESSIONS - len(ids)):
        plain = await session(metadata={"n": n})
        await send(plain, f"hello {n}", f"hello to you, {n}")
    return store, ids


def structured(text, meta):
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    marked = (meta or {}).get("content_encoding") == "json"
    listed = isinstance(value, list) and all(isinstance(part, dict) and "type" in part for part in value) and value
    return value if marked or listed else None


def message(row):
    parts = structured(row.content, row.meta)
    texts = [part["text"] for part in parts if part["type"] == "text"] if parts else [row.content or ""]
    images = [part["image_url"]["url"].split(",")[1] for part in parts or [] if part["type"] == "image_url"]
    calls = [[it["function"]["name"], json.loads(it["function"]["arguments"])] for it in row.tool_calls or []]
    return {"role": row.role, "text": "\n\n".join(text for text in texts if text), "calls": calls,
            "images": len(images), "data": images, "name": row.name if row.role == "tool" else None, "created_at": row.created_at,
            "send": row.__dict__.get("send_index")}


async def expected(store, id):
    about = await now(store.get_session(id))
    rows = await now(store.load_all_messages(id))
    said = [message(row) for row in rows if row.name != "compact_note" and row.state.value != "dropped"]
    summaries = [row.content for row in rows if row.name == "compact_note" and row.state.value == "active"]
    folded = sum(row.state.value == "compacted_out" and row.name != "compact_note" for row in rows)
    todo = (await now(store.get_runtime_state(id, "todo", default={}))) or {}
    notes = await now(store.list_notes(id))
    timers = [timer for timer in await now(store.list_timers(id)) if timer.status == "armed"]
    return {
        "id": id, "system_prompt": about.system_prompt, "metadata": about.metadata, "messages": said,
        "closed": about.status.value == "archived", "parent": about.parent_session_id,
        "folded": [folded, summaries] if summaries else None,
        "todo": [[item["text"], item["status"]] for item in todo.get("items", [])],
        "notes": [[note.note_id, note.content, bool(note.pinned)] for note in notes],
        "timers": sorted([timer.note, timer.due_at, timer.interval_s] for timer in timers),
    }


async def main(address, target, prefix=None):
    llm = Scripted()
    config = AgentLoopConfig(compactor=DefaultCompactor(absolute_threshold=2_000, keep_last_n=1))
    more = {"table_prefix": prefix} if prefix else {}
    loop = StatefulAgentLoop(llm=llm, db_path=address, config=config, tool_registry=registry(), **more)
    store, ids = await fill(loop, llm)
    sessions = [await expected(store, id) for id in ids]
    with open(target, "w") as file:
        json.dump(sessions, file)
    await now(loop.close())


asyncio.run(main(*sys.argv[1:]))
