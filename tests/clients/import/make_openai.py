"""Makes conversations, and writes them down as the API of OpenAI's form lists them.

    make_openai.py SERVER FILE EXPECTED.json
"""

import json
import sys
import urllib.request

server, target, source = sys.argv[1:]


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def said(text, role="user"):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


SAID = [
    said("weather?"),
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"place": "Ulm"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "rain ☔"},
    said("It rains.", "assistant"),
]


def message(role, text, calls=(), name=None):
    return {"role": role, "text": text, "calls": list(calls), "name": name, "images": 0}


expected, lines = [], []
# What an API lists is newest first unless it is told otherwise.
for n, order in enumerate(["asc", "desc"]):
    made = ask("/v1/conversations", {"items": SAID, "metadata": {"user": f"u{n}"}})
    items = ask(f"/v1/conversations/{made['id']}/items?limit=100&order={order}")
    lines.append({**made, "items": items})
    expected.append({"id": made["id"], "metadata": {"user": f"u{n}"}, "messages": [
        message("user", "weather?"), message("assistant", "", [["look", {"place": "Ulm"}]]),
        message("tool", "rain ☔", name="look"), message("assistant", "It rains.")]})
with open(target, "w") as file:
    file.writelines(json.dumps(line) + "\n" for line in lines)
with open(source, "w") as file:
    json.dump(expected, file)
