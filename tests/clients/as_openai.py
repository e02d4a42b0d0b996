"""Plays openai.json with OpenAI's own client, unmodified. Argument: the server's address."""

import json
import pathlib
import re
import sys

from openai import APIStatusError, OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="sk-no-key-is-needed")
saved = {}


def at(value, path):
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else (value or {}).get(name)
    return value


def resolved(value):
    if isinstance(value, dict):
        return {name: resolved(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolved(inner) for inner in value]
    if isinstance(value, str) and value.startswith("$"):
        parts = [at(saved, part.lstrip("$")) for part in value.split("+")]
        return parts[0] if len(parts) == 1 else "".join(parts)
    return value


def plain(result):
    made = result.to_dict() if hasattr(result, "to_dict") else dict(result or {})
    if hasattr(result, "output_text"):
        made["output_text"] = result.output_text
    return made


def stream(events, leave_after):
    seen = {"types": [], "text": ""}
    for event in events:
        event = event.to_dict()
        seen["types"].append(event["type"])
        seen["cursor"] = event["sequence_number"]
        if event["type"] == "response.output_text.delta":
            seen["text"] += event["delta"]
        if "response" in event:
            seen["response"] = event["response"]
            seen["id"] = event["response"]["id"]
        if len(seen["types"]) == leave_after:
            events.close()
            break
    seen["first"], seen["last"] = seen["types"][0], seen["types"][-1]
    output = seen["response"]["output"]
    said = "".join(item["content"][0]["text"] for item in output if item["type"] == "message")
    seen["whole"] = said == seen["text"] != ""
    return seen


def helper(manager):
    with manager as events:
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        final = events.get_final_response()
    return {**plain(final), "is_like_text": final.output_text == text != ""}


def chunks(events):
    seen = {"text": "", "has_usage": False}
    for chunk in events:
        for choice in chunk.choices:
            seen["text"] += choice.delta.content or ""
            seen["finish_reason"] = choice.finish_reason or seen.get("finish_reason")
        seen["has_usage"] |= chunk.usage is not None
    return seen


def play(step):
    method = client
    for name in step["call"].split("."):
        method = getattr(method, name)
    result = method(*resolved(step.get("path", [])), **resolved(step.get("args", {})))
    modes = {
        None: plain,
        "stream": lambda events: stream(events, step.get("leave_after")),
        "helper": helper,
        "chunks": chunks,
    }
    return modes[step.get("mode")](result)


for step in json.loads(pathlib.Path(__file__).with_name("openai.json").read_text()):
    name = step["name"]
    try:
        result = play(step)
    except APIStatusError as refusal:
        expected = step.get("refused")
        assert expected, f"{name}: {refusal}"
        said = {"status": refusal.status_code, "code": refusal.code, "param": refusal.param}
        assert expected.items() <= said.items(), f"{name}: {said}"
        assert refusal.request_id, name
        continue
    assert "refused" not in step, f"{name}: {result}"
    for path, expected in step.get("expect", {}).items():
        text = result.get("output_text") or ""
        if path == "contains":
            assert expected in text, f"{name}: {text}"
        elif path == "is_json_with":
            assert expected in json.loads(text), f"{name}: {text}"
        else:
            found = at(result, path)
            assert found == resolved(expected), f"{name}: {path} is {found!r}: {result}"
    if "as" in step:
        saved[step["as"]] = result
assert re.fullmatch(r"resp_[0-9a-f]{32}", saved["first"]["id"]), saved["first"]
