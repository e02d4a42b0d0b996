"""Reads a response with OpenAI's own client, unmodified, while the server dies. Prints `now` when that may happen.
Argument: the server's address."""

import json
import sys
import time
import urllib.request

from openai import OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="sk-no-key-is-needed", max_retries=0)
words = "whoever reads this hears each of these words once and none of them twice"
begun = client.responses.create(model="demo", input=f"{words} !stream 40x50ms", background=True)
texts, ends, last, cuts, final, asked = {}, {}, None, 0, None, False


def read(events):
    global last, final, asked
    for event in events:
        assert last is None or event.sequence_number > last, (last, event)
        last = event.sequence_number
        if event.type == "response.output_item.added":
            texts[event.output_index] = ""
        elif event.type == "response.output_text.delta":
            texts[event.output_index] += event.delta
            if not asked and len(texts[0]) > 20:
                asked = True
                print("now", flush=True)
        elif event.type == "response.output_item.done":
            ends[event.output_index] = event.item.status
        elif event.type == "response.completed":
            final = event.response
    assert final, "a stream that is not whole ended as if it were"


until = time.monotonic() + 120
while final is None:
    assert time.monotonic() < until, (texts, ends)
    try:
        after = {} if last is None else {"starting_after": last}
        read(client.responses.retrieve(begun.id, stream=True, **after))
    except AssertionError:
        raise
    except Exception:
        # The connection broke, or the server is not there yet.
        cuts += 1
        time.sleep(0.1)

assert cuts > 0, "nothing died"
whole = "".join(text for index, text in texts.items() if ends[index] == "completed")
assert whole == final.output_text != "", (texts, ends, final)
with urllib.request.urlopen(f"{sys.argv[1]}/v1/sends/{begun.id.replace('resp_', 'snd_')}") as native:
    assert json.load(native)["output_text"] == whole, whole
assert client.responses.retrieve(begun.id).output_text == whole
