"""A scripted model that speaks OpenAI's protocol for chat completions, and has room for 16 000 tokens.

It saves what somebody asks it to remember, looks things up, says what it remembers when it is asked, and writes
summaries. It counts what it reads and says: that is the bill.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WINDOW = 16_000


def tokens(value):
    """About how many tokens a value has, at four characters each."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text) // 4 + 1


class Model:
    def __init__(self):
        self.lock = threading.Lock()
        self.calls = self.read = self.said = self.refused = self.folds = self.overhead = 0
        # Cleared, it lets everybody wait who asks; `asked` says that somebody does.
        self.open, self.asked = threading.Event(), threading.Event()
        self.open.set()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                model.asked.set()
                model.open.wait()
                try:
                    model.answer(self, json.loads(body))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # whoever asked was killed

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a connection of somebody who was killed

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def answer(self, http, request):
        messages = request["messages"]
        size = tokens(messages) + tokens(request.get("tools", []))
        if size + (request.get("max_tokens") or 0) > WINDOW:
            with self.lock:
                self.refused += 1
            message = f"This model's maximum context length is {WINDOW} tokens."
            error = {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}
            return send(http, 400, json.dumps({"error": error}).encode(), "application/json")
        text, call = say(messages)
        said = tokens(call or text)
        with self.lock:
            self.calls += 1
            self.read += size
            self.said += said
            self.folds += is_for_summary(messages)
            if messages[0]["role"] == "system":
                # What every request begins with.
                self.overhead = tokens(messages[0]) + tokens(request.get("tools", []))
        usage = {"prompt_tokens": size, "completion_tokens": said, "total_tokens": size + said}
        if call:
            name, arguments = call
            function = {"name": name, "arguments": json.dumps(arguments)}
            delta = {"tool_calls": [{"index": 0, "id": f"call_{self.calls}", "type": "function", "function": function}]}
        else:
            delta = {"content": text}
        finish = "tool_calls" if call else "stop"
        events = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {"choices": [], "usage": usage},
        ]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
        send(http, 200, "".join(lines).encode(), "text/event-stream")


def send(http, status, body, kind):
    http.send_response(status)
    http.send_header("Content-Type", kind)
    http.send_header("Content-Length", str(len(body)))
    http.end_headers()
    http.wfile.write(body)


def is_for_summary(messages):
    return "<transcript>" in str(messages[-1].get("content"))


def say(messages):
    """What the model says to this: a text, or a call of a tool."""
    last = messages[-1]
    users = [m for m in messages if m["role"] == "user" and not str(m["content"]).startswith("<memory>")]
    asked = str(users[-1]["content"])
    if is_for_summary(messages):
        heads = re.findall(r"day \d+ of \w+", asked)
        return f"<summary>They talked about their days, up to {heads[-1] if heads else 'now'}.</summary>", None
    if any(m["role"] == "tool" for m in messages[messages.index(users[-1]):]):
        return "It is done.", None
    wish = re.search(r"Remember that (.+?)\.", asked)
    if wish:
        return "", ("memory_save", {"text": wish[1]})
    if "What do you remember" in asked:
        known = re.findall(r"<memory>\n(.*?)</memory>", str(last["content"]), re.DOTALL)
        facts = re.findall(r"^- \([\d-]+\) (.+)$", known[-1] if known else "", re.MULTILINE)
        return "You told me that " + "; ".join(facts) + "." if facts else "Nothing.", None
    return "I see. " + "That sounds like a day worth telling somebody about. " * 5, None
