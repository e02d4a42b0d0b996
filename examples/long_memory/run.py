#!/usr/bin/env python3
"""An assistant that two people talk to for months, killed again and again. See README.md."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from model import Model, WINDOW, tokens

HERE = Path(__file__).resolve().parent
MONTHS = int(os.environ.get("MONTHS", "3"))
DAYS = int(os.environ.get("DAYS", "30"))
KILLS = float(os.environ.get("KILLS", "0.1"))  # on so many of the days
PEOPLE = {
    "ann": ["my dog is called Rex", "I am allergic to nuts", "my train leaves at seven"],
    "bob": ["my boat is called Bello", "I drink green tea only", "my sister lives in Oslo"],
}
AGENT = {
    "name": "companion",
    "system_prompt": "You are the companion of one person, who tells you of each day. "
    "What you are asked to remember, you save to the memory, and you never speak of other people's matters.",
    "tools": ["memory_save"],
    "max_tokens": 1000,
    "memory": {"namespace": "user/{{metadata.user_id}}"},
}


def program():
    """The program: the one that is named, or the one of this checkout."""
    named = os.environ.get("MAINSPRING")
    if named:
        return named
    root = HERE.parent.parent
    subprocess.run(["cargo", "build", "--quiet", "--package", "mainspring-cli"], cwd=root, check=True)
    return str(root / "target" / "debug" / "mainspring")


class System:
    """`mainspring dev`, in lives that end with signal 9."""

    def __init__(self, binary, model, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.command = [binary, "dev"]
        self.log = open(folder / "log", "ab")
        self.env = dict(
            os.environ,
            MAINSPRING_CONFIG=str(HERE / "mainspring.toml"),
            MAINSPRING_LISTEN=f"127.0.0.1:{port}",
            MAINSPRING_DATA_DIR=str(folder / "data"),
            MAINSPRING_LEASE_TTL="2s",
            MAINSPRING_LLM_PROVIDER="openai",
            MAINSPRING_LLM_MODEL="small",
            MAINSPRING_LLM_BASE_URL=model.url,
            MAINSPRING_LLM_API_KEY="none",
            MAINSPRING_LOG="warn",
        )
        self.kills = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.env, stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/readyz", timeout=5)
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        sys.exit("the system does not start; see its log: " + self.log.name)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1
        self.start()

    def ask(self, method, path, body=None, key=None):
        """One request, repeated under its key until it is answered."""
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        for _ in range(100):
            request = urllib.request.Request(self.url + path, data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    sys.exit(f"{method} {path}: {error.read().decode()}")
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{method} {path} is not answered")

    def finish(self, send):
        while send["status"] not in ("completed", "failed", "cancelled"):
            send = self.ask("GET", f"/v1/sends/{send['id']}?wait=20s")
        if send["status"] != "completed":
            sys.exit(f"a send is not completed: {json.dumps(send, indent=1)}")
        return send

    def resumed(self, send):
        """Whether another life has taken this send over."""
        with urllib.request.urlopen(f"{self.url}/v1/sends/{send['id']}/events", timeout=60) as events:
            told = events.read().decode()
        return any(part.startswith("event: send.resumed") and "takeover" in part for part in parts_of(told))

    def everything(self, path):
        """All pages of a list."""
        rows, page = [], self.ask("GET", path + ("&" if "?" in path else "?") + "limit=200")
        while True:
            rows += page["data"]
            cursor = page.get("next_cursor")
            if not cursor:
                return rows
            mark = "&" if "?" in path else "?"
            page = self.ask("GET", f"{path}{mark}limit=200&cursor={cursor}")


def parts_of(stream):
    """The events of a stream, each without its id."""
    for event in stream.split("\n\n"):
        yield "\n".join(line for line in event.split("\n") if not line.startswith("id:"))


def told(person, month, day):
    """What somebody tells of a day; on the first days of the first month also what is to be remembered."""
    facts = PEOPLE[person]
    words = f"It is day {day + 1} of month{month + 1}. "
    if month == 0 and day < len(facts):
        return words + f"Remember that {facts[day]}."
    return words + "The weather was as it was, I went to work and came home again, and " * 8 + "that was all."


def naive(messages, overhead):
    """What it takes to send everything every time, and how many requests would not have fitted."""
    sent = over = before = 0
    for message in messages:
        if message["role"] == "assistant":
            sent += before + overhead
            over += before + overhead + AGENT["max_tokens"] > WINDOW
        before += tokens({key: message.get(key) for key in ("role", "content", "tool_calls")})
    return sent, over


def main():
    random.seed(7)
    folder = Path(tempfile.mkdtemp(prefix="long-memory-"))
    model = Model()
    system = System(program(), model, folder)
    try:
        talk(system, model)
    finally:
        system.process.kill()
        system.process.wait()
        model.server.shutdown()
    shutil.rmtree(folder)


def talk(system, model):
    sessions = {}
    for person in PEOPLE:
        body = {"agent": AGENT, "metadata": {"user_id": person}}
        sessions[person] = system.ask("POST", "/v1/sessions", body, f"session-{person}")["id"]
    timers, taken_over = [], 0
    for month in range(MONTHS):
        # At the end of the month each of them is asked by a timer how it was. A month takes seconds here.
        for person, session in sessions.items():
            timer = {"session_id": session, "after": "2s", "input": f"month{month + 1} is over: sum it up."}
            timers.append(system.ask("POST", "/v1/timers", timer, f"timer-{person}-{month}")["id"])
        for day in range(DAYS):
            sends = []
            is_killed = random.random() < KILLS
            in_call = is_killed and random.random() < 0.5
            if in_call:
                # It dies while it waits for the model; otherwise at any time.
                model.asked.clear()
                model.open.clear()
            for person, session in sessions.items():
                body = {"input": told(person, month, day)}
                key = f"{person}-{month}-{day}"
                sends.append(system.ask("POST", f"/v1/sessions/{session}/sends", body, key))
            if in_call and not model.asked.wait(20):
                sys.exit("nobody asks the model")
            if is_killed:
                time.sleep(0 if in_call else random.uniform(0, 0.05))
                system.kill()
                model.open.set()
            for send in sends:
                system.finish(send)
                taken_over += is_killed and system.resumed(send)
    fired = 0
    for timer in timers:
        for _ in range(100):
            rows = system.ask("GET", f"/v1/timers/{timer}/occurrences")["data"]
            if rows:
                break
            time.sleep(0.1)
        fired += len(rows)
        for row in rows:
            system.finish(system.ask("GET", f"/v1/sends/{row['send_id']}"))
    wrong = [] if fired == len(timers) else [f"{fired} of {len(timers)} timers fired"]

    everything = over = folds = 0
    system.kill()
    for person, session in sessions.items():
        body = {"input": "What do you remember of my dog, my boat, my tea, my train, my sister and my allergic nuts?"}
        send = system.finish(system.ask("POST", f"/v1/sessions/{session}/sends", body, f"{person}-last"))
        print(f"{person}: {send['output_text']}")
        for other, facts in PEOPLE.items():
            for fact in facts:
                if (fact in send["output_text"]) != (other == person):
                    wrong.append(f"{person} and {fact!r}")
        messages = system.everything(f"/v1/sessions/{session}/messages")
        users = sum(message["role"] == "user" for message in messages)
        answers = sum(message["role"] == "assistant" and not message.get("tool_calls") for message in messages)
        if users != MONTHS * (DAYS + 1) + 1 or answers != users:
            wrong.append(f"{users} inputs of {person}, {answers} answers")
        print(f"{person}: {users} inputs, all answered" if answers == users else f"{person}: {answers} answers")
        shown = system.everything(f"/v1/sessions/{session}/messages?folded=true")
        folds += sum(row["role"] == "fold" for row in shown)
        sent, too_long = naive(messages, model.overhead)
        everything, over = everything + sent, over + too_long
    audit = subprocess.run([system.command[0], "audit"], env=system.env, capture_output=True, text=True)
    if audit.returncode:
        wrong.append(audit.stdout + audit.stderr)

    print(f"{MONTHS} months, {len(timers)} timers, {system.kills} times killed with signal 9, {taken_over} sends taken over")
    print(f"tokens read by the model: {model.read:,} in {model.calls} calls, {model.folds} of them for summaries")
    print(f"with everything sent each time: {everything:,}, and {over} requests would not have fitted")
    print(f"that is {model.read / everything:.2f} of it")
    if wrong:
        sys.exit("wrong: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
