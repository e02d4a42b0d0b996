"""Compares what a server says of imported sessions with what was in their source.

    compare.py SERVER SYSTEM EXPECTED.json
"""

import base64
import json
import sys
import urllib.request

server, system, source = sys.argv[1:]


def get(path):
    with urllib.request.urlopen(server + path) as answer:
        return json.load(answer)


def listed(path):
    rows, cursor = [], None
    while True:
        page = get(path + ("&" if "?" in path else "?") + "limit=100" + (f"&cursor={cursor}" if cursor else ""))
        rows += page["data"]
        cursor = page["next_cursor"]
        if cursor is None:
            return rows


def millis(text):
    from datetime import datetime

    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def shown(message):
    texts = [part["text"] for part in message["content"] if part["type"] == "text"]
    return {
        "role": message["role"], "text": "\n\n".join(texts),
        "calls": [[call["name"], call["arguments"]] for call in message.get("tool_calls", [])],
        "images": sum(part["type"] == "image" for part in message["content"]),
        "name": message.get("name"),
    }


def archived(id):
    with urllib.request.urlopen(f"{server}/v1/sessions/{id}/export?blobs=false") as answer:
        return json.loads(answer.readline())["session"]


def check(session, wanted):
    id = session["id"]
    messages = listed(f"/v1/sessions/{id}/messages")
    said = [shown(message) for message in messages]
    asked = wanted["messages"]
    # Calls that were open get a result that says so, behind the results that there are.
    for missing in said[len(asked):]:
        assert missing["role"] == "tool" and "no result" in missing["text"], missing
    said = said[:len(asked)]
    assert len(said) == len(asked), (id, len(said), len(asked))
    for one, other in zip(said, asked):
        for member, value in one.items():
            assert value == other[member], (id, member, value, other[member])
    times = [message.get("created_at") for message in asked]
    if times and times[0] is not None:
        assert [millis(message["created_at"]) for message in messages[:len(asked)]] == times, id
    sends = [message.get("send") for message in asked]
    if sends and sends[0] is not None:
        ids = [message["send_id"] for message in messages[:len(asked)]]
        assert len(set(zip(ids, sends))) == len(set(ids)) == len(set(sends)), id
    for message, other in zip(messages, asked):
        if other["images"]:
            blob = next(part for part in message["content"] if part["type"] == "image")["source"]
            with urllib.request.urlopen(f"{server}/v1/blobs/{blob['sha256']}") as answer:
                assert base64.b64encode(answer.read()).decode() in json.dumps(wanted), id
    assert session["agent"].get("system_prompt") == wanted.get("system_prompt"), id
    for name, value in wanted.get("metadata", {}).items():
        assert session["metadata"][name] == value, (id, name)
    assert (session["status"] == "closed") == wanted.get("closed", False), session["status"]
    assert session["metadata"].get("imported_parent") == wanted.get("parent"), id
    rest = archived(id)
    todo = [[item["text"], item["status"]] for item in rest.get("todo", {}).get("entries", [])]
    assert todo == wanted.get("todo", []), (id, todo)
    notes = [[note["id"], note["text"], note.get("pinned", False)] for note in rest.get("notes", {}).get("entries", [])]
    assert notes == wanted.get("notes", []), (id, notes)
    folds = rest.get("folds", [])
    if wanted.get("folded"):
        count, summaries = wanted["folded"]
        assert [fold["text"] for fold in folds] == summaries, id
        assert sum(fold["to_seq"] - fold["from_seq"] + 1 for fold in folds) == count, id
    else:
        assert folds == [], id
    timers = [[timer["input"][0]["text"], millis(timer["at"]), seconds(timer["every"])] for timer in
              listed(f"/v1/timers?session_id={id}")]
    key = json.dumps
    assert sorted(timers, key=key) == sorted(wanted.get("timers", []), key=key), (id, timers)
    return len(asked), len(timers), len(notes), len(todo)


def seconds(every):
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return None if every is None else int(every[:-1]) * units[every[-1]]


expected = {session["id"]: session for session in json.load(open(source))}
found = listed(f"/v1/sessions?metadata.imported_by={system}")
found = {session["metadata"]["imported_from"]: session for session in found}
mine = {id: found[id] for id in expected}
assert len(mine) == len(expected)
totals = [sum(column) for column in zip(*(check(mine[id], expected[id]) for id in expected))]
print(f"{len(expected)} of {len(expected)} sessions agree: "
      + ", ".join(f"{count} {what}" for count, what in zip(totals, ["messages", "timers", "notes", "to-do items"])))
