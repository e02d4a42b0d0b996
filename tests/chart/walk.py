"""docs/guides/production.md, walked as it is written on the stand-in for a cluster.

From an empty folder to two tenants, a scaled pool, a board with figures in it and a restored backup. Each block of the
page is run in its order, in one environment, once what a reader replaces is replaced (`Walk.places`). kubectl, helm and
skopeo are programs that tell this process what they were asked; every other program is the real one.

Run by `cargo xtask stand-in`, from the top of the sources.
"""

import argparse
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

import board
from cluster import show_logs
from kubelet import Cluster, Node, until

PAGE = "docs/guides/production.md"
# A whole one, not the part that is shown of it later.
KEY = re.compile(r"msk_[0-9a-zA-Z]+_[0-9a-zA-Z]{16,}")
END = "## Without Kubernetes"
SHIM = """#!{python}
import json, os, sys, urllib.request
asked = json.dumps({{"words": [os.path.basename(sys.argv[0]), *sys.argv[1:]], "folder": os.getcwd()}}).encode()
with urllib.request.urlopen("{url}", asked, timeout=300) as answer:
    code, out = json.load(answer)
(sys.stderr if code else sys.stdout).write(out)
sys.exit(code)
"""


def blocks():
    """The page's blocks: heading, language and text."""
    text, heading = open(PAGE).read(), ""
    for found in re.finditer(r"^#+ ([^\n]+)$|^```(\w+)\n(.*?)^```$", text[: text.index(END)], re.M | re.S):
        if found[1]:
            heading = found[1]
        else:
            yield heading, found[2], found[3]


def merged(before, new):
    """Values as helm merges them: tables member by member, anything else as the new one says."""
    if not (isinstance(before, dict) and isinstance(new, dict)):
        return new
    return before | {name: merged(before.get(name), value) for name, value in new.items()}


class Walk:
    def __init__(self, given, folder):
        self.given, self.folder, self.objects, self.printed = given, folder, [], ""
        # What another installation has left in the queue is not of this database.
        subprocess.run(["redis-cli", "-u", given.redis, "flushall"], check=True, capture_output=True, timeout=10)
        self.home, self.bin = os.path.join(folder, "home"), os.path.join(folder, "bin")
        for made in (self.home, self.bin, os.path.join(folder, "pods")):
            os.makedirs(made)
        self.node = Node({"": os.path.abspath(given.binary)}, {}, os.path.join(folder, "pods"))
        self.cluster = Cluster(self.node)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for program in ("kubectl", "helm", "skopeo"):
            path = os.path.join(self.bin, program)
            with open(path, "w") as file:
                file.write(SHIM.format(python=sys.executable, url=f"http://127.0.0.1:{server.server_address[1]}"))
            os.chmod(path, 0o755)
        os.symlink(os.path.abspath(given.binary), os.path.join(self.bin, "mainspring"))
        at = urllib.parse.urlparse(given.postgres)
        self.database = f"{at.hostname}:{at.port}"
        # The operator's own login to the database server.
        self.env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": self.home, "LC_ALL": "C.UTF-8",
            "PGHOST": at.hostname, "PGPORT": str(at.port), "PGUSER": at.username, "PGDATABASE": "postgres",
        }

    def places(self, text):
        """What a reader of the page replaces by what is his own."""
        text = re.sub(r"postgres://mainspring:…@db\.example\.com/(\w+)\?sslmode=verify-full", rf"postgres://mainspring:own@{self.database}/\1", text)
        text = text.replace("password '…'", "password 'own'").replace("rediss://redis.example.com", self.given.redis).replace("sk-…", "sk-own")
        text = text.replace("{provider: openai, model: gpt-5-mini}", "{provider: demo}")
        if "mainspring-scheduler" in self.cluster.services:
            text = text.replace("https://mainspring.example.com", self.service().url)
        if "msk_…" in text:
            text = text.replace("msk_…", self.key)
        assert "…" not in text, f"a place of the page that this test does not fill:\n{text}"
        return text

    def service(self):
        return self.cluster.services["mainspring-scheduler"]

    # --- blocks

    def run(self, language, text):
        if language == "sh" and "msk_…" in text:
            # The key that was printed before goes in here.
            at = text.rindex("\n", 0, text.index("msk_…")) + 1
            self.run(language, text[:at])
            text = text[at:]
        text = self.places(text) if language != "ini" else text
        values = os.path.join(self.home, "values.yaml")
        if language == "yaml":
            first = text.splitlines()[0]
            assert first in ("# values.yaml", "# added to values.yaml", "# merged into values.yaml"), first
            assert os.path.exists(values) == (first != "# values.yaml"), first
            before = yaml.safe_load(open(values)) if os.path.exists(values) else {}
            new = yaml.safe_load(text)
            if first == "# merged into values.yaml":
                text = yaml.safe_dump(merged(before, new))
                os.remove(values)
            else:
                already = before.keys() & new.keys()
                assert not already, f"{already} would be there twice"
            with open(values, "a") as file:
                file.write(text)
        elif language == "sql":
            self.shell(f"psql -XAtq -v ON_ERROR_STOP=1 <<'SQL'\n{text}SQL\n")
        elif language == "sh":
            self.shell(text)
            if found := KEY.search(self.printed):
                self.key = found[0]
        else:
            assert language == "ini", language

    def shell(self, text):
        """Runs a block, whose variables stay."""
        kept = os.path.join(self.folder, "env")
        script = f"set -euo pipefail\n{text}\nenv -0 > {kept}\n"
        done = subprocess.run(["bash", "-c", script], env=self.env, cwd=self.home, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{text}\nexit {done.returncode}\n{done.stdout}{done.stderr}"
        self.printed = done.stdout
        with open(kept) as file:
            self.env = dict(entry.split("=", 1) for entry in file.read().split("\0") if entry)
        return done.stdout

    # --- what the programs do that are not the real ones

    def skopeo(self, words, folder):
        is_copy = len(words) == 3 and words[0] == "copy" and words[1].startswith("oci-archive:") and words[2].startswith("docker://")
        return (0, "") if is_copy else (1, f"skopeo {words}")

    def helm(self, words, folder):
        assert words[:2] == ["-n", "agents"] and words[3] == "mainspring", words
        if words[2] == "test":
            test = next(o for o in self.objects if o["metadata"]["name"] == "mainspring-test")
            return self.cluster.job(test, {"MAINSPRING_SERVER": self.service().url})
        assert words[2] in ("install", "upgrade") and words[4:6] == ["helm/mainspring", "-f"], words
        render = [self.given.helm, "template", "mainspring", "helm/mainspring", "-n", "agents", "--kube-version", "1.34", "-f", os.path.join(folder, words[6])]
        done = subprocess.run(render, capture_output=True, text=True, timeout=60)
        if done.returncode:
            return done.returncode, done.stderr
        self.objects = [document for document in yaml.safe_load_all(done.stdout) if document]
        if output := self.cluster.apply(self.objects):
            return 1, output
        if "--wait" in words:
            until("everything is ready", lambda: all(d.done() for d in self.cluster.deployments.values()), 120)
        return 0, ""

    def kubectl(self, words, folder):
        if words == ["create", "namespace", "agents"]:
            return 0, ""
        assert words[:2] == ["-n", "agents"], words
        match words[2:]:
            case ["create", "secret", "generic", name, *literals]:
                assert name not in self.node.secrets, f"the Secret {name} is there already"
                self.node.secrets[name] = dict(literal.removeprefix("--from-literal=").split("=", 1) for literal in literals)
            case ["get", "secret", name, "-o", path]:
                member = re.fullmatch(r"jsonpath=\{\.data\.(\w+)\}", path)[1]
                return 0, base64.b64encode(self.node.secrets[name][member].encode()).decode()
            case ["get", "scaledobject,deployment"]:
                return 0, "".join(f"{name} {deployment.replicas}\n" for name, deployment in self.cluster.deployments.items())
            case ["patch", "secret", name, "-p", patch]:
                self.node.secrets[name] |= json.loads(patch)["stringData"]
            case ["annotate", "scaledobject", "--all", "autoscaling.keda.sh/paused=true"]:
                self.pause(True)
            case ["annotate", "scaledobject", "--all", "autoscaling.keda.sh/paused-"]:
                self.pause(False)
            case ["scale", "deployment", "--all", count]:
                for deployment in self.cluster.deployments.values():
                    deployment.replicas = int(count.removeprefix("--replicas="))
            case ["wait", "pod", "--all", "--for=delete", "--timeout=5m"]:
                until("no pod is left", lambda: not any(d.pods for d in self.cluster.deployments.values()), 120)
            case _:
                return 1, f"this test knows no kubectl {words}"
        return 0, ""

    def pause(self, paused):
        for scaler in self.cluster.scalers.values():
            scaler.paused = paused


def handler(walk):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            program, *words = asked["words"]
            try:
                answer = getattr(walk, program)(words, asked["folder"])
            except AssertionError as error:
                answer = 1, f"{error}\n"
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


# --- what holds after each section


class Checks:
    def __init__(self, walk):
        self.walk, self.figures = walk, []

    def ask(self, method, path, body=None, key=None):
        """What the API answers; none where there is no such thing."""
        key = key or self.walk.env["MAINSPRING_API_KEY"]
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.walk.service().url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def installation(self):
        assert self.walk.printed.rstrip().splitlines()[-1].strip(), "a send has an answer"

    def tenants(self):
        keys = KEY.findall(self.walk.printed)
        assert len(keys) == 2, self.walk.printed
        blue, green = keys
        self.blue = blue
        sends = {name: self.ask("POST", "/v1/sends?wait=20s", {"input": f"I am {name}", "session": {}}, key) for name, key in (("blue", blue), ("green", green))}
        self.sent = sends["blue"]["id"]
        assert all(send["status"] == "completed" for send in sends.values()), sends
        seen = [send["id"] for send in self.ask("GET", "/v1/sends", key=blue)["data"]]
        assert seen == [self.sent], seen
        self.walk.shell(f"MAINSPRING_API_KEY={blue} mainspring -o json sends list | grep -q {self.sent}")
        self.figures.append("2 tenants that do not see each other")

    def pool(self):
        """More work than one pod has room for brings others."""
        deployment, started = self.walk.cluster.deployments["mainspring-worker-default"], time.monotonic()
        before = deployment.replicas
        items = [{"input": "!sleep 20s hello", "session": {}}] * 750
        answers = [self.ask("POST", "/v1/sends:batch", {"sends": items}) for _ in range(2)]
        self.crowd = [item["send"]["id"] for answer in answers for item in answer["results"]]
        # By the page's 500 sends a pod, and the chart's 80 % of them.
        until("four pods are ready", lambda: sum(pod.ready for pod in deployment.pods) == 4, 90)
        self.figures.append(f"{len(self.crowd)} sends scaled the pool from {before} to 4 pods in {time.monotonic() - started:.0f} s")

    def board(self):
        kinds = {o["kind"] for o in self.walk.objects}
        assert {"ServiceMonitor", "PodMonitor", "PrometheusRule"} <= kinds, kinds
        self.figures.append(board.check(self.walk, self.work))

    def work(self):
        """Something of each kind: a send, a timer, a run, and the removal of a session."""
        send = self.ask("POST", "/v1/sends?wait=5s", {"input": "hello", "session": {}})
        timer = {"session_id": send["session_id"], "after": "1s", "input": "again"}
        self.ask("POST", "/v1/timers", timer)
        leaf = {"type": "agent", "id": "leaf", "spec": {"name": "leaf", "system_prompt": "Work.", "tools": []}, "input": "{{n}}"}
        root = {"type": "foreach", "id": "all", "as": "n", "items": [1, 2, 3], "max_concurrency": 3, "on_error": "continue", "body": leaf}
        self.ask("POST", "/v1/runs", {"spec": {"name": "a crowd", "root": root}})
        gone = self.ask("POST", "/v1/sends?wait=5s", {"input": "hello", "session": {}})
        self.ask("DELETE", f"/v1/sessions/{gone['session_id']}")

    def backup(self):
        self.later = self.ask("POST", "/v1/sends?wait=20s", {"input": "too late", "session": {}}, self.blue)["id"]

    def restored(self):
        until("all are ready", lambda: all(d.done() for d in self.walk.cluster.deployments.values()), 120)
        assert self.ask("GET", f"/v1/sends/{self.sent}", key=self.blue)["status"] == "completed", "it was in the backup"
        assert self.ask("GET", f"/v1/sends/{self.later}", key=self.blue) is None, "it came after the backup"
        new = self.ask("POST", "/v1/sends?wait=20s", {"input": "once more", "session": {}}, self.blue)
        assert new["status"] == "completed", new
        lost = [send for send in map(lambda id_: self.ask("GET", f"/v1/sends/{id_}?wait=50s"), self.crowd[::50]) if send["status"] != "completed"]
        assert not lost, lost[:2]
        self.walk.shell("MAINSPRING_DATABASE_URL=$RESTORED_DATABASE_URL mainspring audit")
        self.figures.append("a backup restored, and work on it")


def walk(given, folder):
    walk = Walk(given, folder)
    checks, count, started = Checks(walk), 0, time.monotonic()
    # By the number of a section's last block that they follow.
    after = {
        ("4. The installation", "mainspring send"): checks.installation,
        ("5. Two tenants", "mainspring tenants"): checks.tenants,
        ("6. A pool that scales", "helm -n agents upgrade"): checks.pool,
        ("7. A dashboard and alerts", "helm -n agents upgrade"): checks.board,
        ("8. A backup, restored", "pg_dump"): checks.backup,
        ("8. A backup, restored", "kubectl -n agents patch"): checks.restored,
    }
    try:
        for heading, language, text in blocks():
            walk.run(language, text)
            count += 1
            for place in [place for place in after if place[0] == heading and place[1] in text]:
                after.pop(place)()
        assert not after, f"the page has lost {list(after)}"
    except BaseException:
        show_logs(os.path.join(folder, "pods"))
        raise
    finally:
        walk.cluster.stop()
    print(f"walk: {count} blocks of {PAGE} in {time.monotonic() - started:.0f} s: {'; '.join(checks.figures)}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("helm", "binary", "postgres", "redis"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    given.helm = os.path.abspath(given.helm)
    for program in ("psql", "pg_dump", "pg_restore", "createdb", "redis-cli"):
        assert shutil.which(program), f"{program} is missing"
    with tempfile.TemporaryDirectory(prefix="mainspring-walk-") as folder:
        walk(given, folder)


if __name__ == "__main__":
    main()
