"""An installation of the chart on a stand-in for a cluster: upgraded, scaled, drained and broken under load.

Run by `cargo xtask stand-in`, from the top of the sources. Prints one line of figures per chapter.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import uuid

import yaml

from kubelet import Cluster, Node, until
from stub import Stub

ROOT_KEY = "the-operators-key-of-a-test"
NAME = "rel-mainspring"


def render(helm, *more):
    words = [helm, "template", "rel", "helm/mainspring", "-n", "agents", "--kube-version", "1.34", "-f", "tests/chart/cluster.yaml", *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


class Api:
    def __init__(self, service):
        self.service, self.failures, self.accepted = service, [], set()

    def open(self, method, path, body=None, key=None, timeout=60):
        headers = {"Authorization": f"Bearer {ROOT_KEY}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.service.url + path, data, headers, method=method)
        return urllib.request.urlopen(request, timeout=timeout)

    def call(self, method, path, body=None, key=None):
        """One request; a failure is counted, and is no answer."""
        try:
            with self.open(method, path, body, key) as answer:
                return json.loads(answer.read())
        except OSError as error:
            self.failures.append(f"{method} {path}: {error}")
            return None

    def send(self, text, key, pool="default"):
        send = self.call("POST", "/v1/sends", {"input": text, "session": {"agent": {"pool": pool}}}, key)
        if send:
            self.accepted.add(send["id"])
        return send

    def burst(self, text, key, count):
        """So many sends at once, each in a session of its own; their ids."""
        ids = []
        for begin in range(0, count, 1000):
            items = [{"input": text, "session": {}} for _ in range(begin, min(begin + 1000, count))]
            answer = self.call("POST", "/v1/sends:batch", {"sends": items}, f"{key}-{begin}")
            ids += [item["send"]["id"] for item in answer["results"]]
        assert len(ids) == count, f"{len(ids)} of {count} were accepted"
        self.accepted |= set(ids)
        return ids

    def holding(self):
        """How many workers had a send in flight when they last renewed their leases."""
        workers = self.call("GET", "/v1/workers")["data"]
        return sum(worker["in_flight"] > 0 for worker in workers)

    def all(self):
        """Every send that there is."""
        sends, query = [], "?limit=100"
        while query:
            page = self.call("GET", f"/v1/sends{query}")
            sends += page["data"]
            query = page["next_cursor"] and f"?limit=100&cursor={urllib.parse.quote(page['next_cursor'])}"
        return sends

    def ended(self, id_, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            send = self.call("GET", f"/v1/sends/{id_}?wait=5s")
            if send and send["status"] in ("completed", "failed", "cancelled"):
                return send
        raise AssertionError(f"{id_} has not ended within {seconds} s")

    def follow(self, id_):
        """The durable events of a send, read over as many connections as it takes."""
        events, connections = [], 0
        while not events or events[-1][1] not in ("send.completed", "send.failed", "send.cancelled"):
            assert connections < 50, f"the stream of {id_} does not end"
            connections += 1
            request = urllib.request.Request(f"{self.service.url}/v1/sends/{id_}/events", headers={"Authorization": f"Bearer {ROOT_KEY}"})
            if events:
                request.add_header("Last-Event-ID", events[-1][0])
            try:
                with urllib.request.urlopen(request, timeout=30) as stream:
                    id_of, type_ = None, None
                    for line in stream:
                        name, _, value = line.decode().rstrip("\n").partition(": ")
                        if name == "id":
                            id_of = value
                        elif name == "event":
                            type_ = value
                        elif not name and type_:
                            if id_of:
                                events.append((id_of, type_))
                            id_of, type_ = None, None
            except OSError:
                time.sleep(0.1)
        return events, connections


class Load:
    """Clients that send, one after the other, and read each answer, until they are told to end."""

    def __init__(self, api, clients, text, streams=0):
        self.api, self.text, self.ending, self.sends, self.streamed = api, text, threading.Event(), [], []
        self.threads = [threading.Thread(target=self.work, args=(uuid.uuid4().hex,), daemon=True) for _ in range(clients)]
        self.threads += [threading.Thread(target=self.stream, args=(uuid.uuid4().hex,), daemon=True) for _ in range(streams)]
        for thread in self.threads:
            thread.start()

    def work(self, name):
        turn = 0
        while not self.ending.is_set():
            turn += 1
            if send := self.api.send(self.text, f"{name}-{turn}"):
                self.sends.append(self.api.ended(send["id"]))

    def stream(self, name):
        turn = 0
        while not self.ending.is_set():
            turn += 1
            if send := self.api.send("!stream 120x100ms a story", f"{name}-{turn}"):
                seen, connections = self.api.follow(send["id"])
                whole, _ = self.api.follow(send["id"])
                self.streamed.append((seen == whole, connections))
                self.sends.append(self.api.ended(send["id"]))

    def end(self):
        """What ended well, and how many; everything else fails."""
        self.ending.set()
        for thread in self.threads:
            thread.join(180)
            assert not thread.is_alive(), "a client waits for something that does not come"
        bad = [send for send in self.sends if send["status"] != "completed"]
        assert not bad, bad[:3]
        gaps = [one for one in self.streamed if not one[0]]
        assert not gaps, "a stream had a gap or said something twice"
        return len(self.sends)


def check_gone(deployments, since=0):
    """Pods that were taken away ended by themselves, with exit code 0."""
    pods = [pod for deployment in deployments for pod in deployment.everyone() if pod.gone.is_set() and pod.was_ready and pod.deleted >= since]
    for pod in pods:
        assert not pod.killed and pod.exits[-1:] == [0], f"{pod.name}: exits {pod.exits}, killed {pod.killed}"
    return len(pods)


def ready(deployment):
    return sum(pod.ready and pod.deleted is None for pod in deployment.pods)


def install(cluster, helm, *more):
    started = time.monotonic()
    objects = render(helm, *more)
    assert cluster.apply(objects) is None
    until("everything is ready", lambda: all(d.done() for d in cluster.deployments.values()), 120)
    test = next(o for o in objects if o["metadata"]["name"] == f"{NAME}-test")
    service = cluster.services[f"{NAME}-scheduler"]
    code, output = cluster.job(test, {"MAINSPRING_SERVER": service.url})
    assert code == 0 and "Say hello." in output, output
    print(f"install: schema, {sum(d.replicas for d in cluster.deployments.values())} pods ready and a send answered in {time.monotonic() - started:.1f} s")


LOGS = ("--set", "config.log=debug\\,apalis_core=off\\,sqlx=warn\\,hyper=warn")
PREVIOUS = ("--set", "image.tag=previous")


def upgrade(cluster, api, helm, name="upgrade", values=LOGS):
    """Everything is replaced under load: no request fails, no stream has a gap, nothing is lost or doubled."""
    api.failures.clear()
    load, started = Load(api, 4, "!sleep 100ms hello", streams=4), time.monotonic()
    before = {name: {pod.name for pod in d.pods} for name, d in cluster.deployments.items()}
    time.sleep(1)
    output = cluster.apply(render(helm, *values))
    assert output is None, output
    until("all pods are new", lambda: all(d.done() for d in cluster.deployments.values()), 180)
    took = time.monotonic() - started
    time.sleep(1)
    sends = load.end()
    for name, deployment in cluster.deployments.items():
        assert not before[name] & {pod.name for pod in deployment.pods}, f"{name} has old pods"
    gone = check_gone(cluster.deployments.values(), started)
    assert not api.failures, api.failures[:5]
    assert any(connections > 1 for _, connections in load.streamed), "no stream was cut: the upgrade proves nothing of streams"
    resumed = sum(connections - 1 for _, connections in load.streamed)
    print(f"{name}: {gone} pods replaced in {took:.1f} s under {sends} sends: 0 requests failed, {len(load.streamed)} streams without a gap, resumed {resumed} times")


def scale(cluster, api, _):
    """From one pod to six by demand, to two under a little of it, and no call is interrupted."""
    deployment, started = cluster.deployments[f"{NAME}-worker-default"], time.monotonic()
    ids = [api.send("!sleep 4s hello", f"burst-{started}-{n}")["id"] for n in range(60)]
    until("six pods are ready", lambda: ready(deployment) == 6, 120)
    out = time.monotonic() - started
    burst = [api.ended(id_, 180) for id_ in ids]
    assert all(send["status"] == "completed" for send in burst), burst[:2]
    # Six at a time are more than one pod's four, and fit into two.
    load = Load(api, 6, "!sleep 2s hello")
    until("two pods are left", lambda: deployment.replicas == 2 and len(deployment.pods) == 2, 120)
    fell = time.monotonic()
    until("they stay", lambda: time.monotonic() > fell + 5, 10)
    assert deployment.replicas == 2, deployment.replicas
    sends = load.end()
    until("one pod is left", lambda: deployment.replicas == 1 and len(deployment.pods) == 1, 120)
    gone = check_gone([deployment], started)
    # A call that is interrupted is made again, which counts.
    again = [send for send in burst + load.sends if send["attempts"] != 1]
    assert gone >= 5 and not again, f"{gone} pods gone, {len(again)} sends with another attempt: {again[:2]}"
    print(f"scale: 60 sends of 4 s: 6 pods ready after {out:.1f} s; then 2 pods under {sends} sends, then 1; {gone} pods gone, 0 calls interrupted")


def burst(cluster, api, count):
    """From one pod to six by more than they can do, until each has some of it; and back, without an interrupted call."""
    deployment = cluster.deployments[f"{NAME}-worker-default"]
    until("one pod is left", lambda: deployment.replicas == 1 and len(deployment.pods) == 1, 120)
    started = time.monotonic()
    ids = set(api.burst("!sleep 100ms hello", f"burst-{started}", count))
    accepted = time.monotonic() - started
    until("each of six pods has some of it", lambda: api.holding() == 6, 120)
    claimed = time.monotonic() - started
    open_ = lambda: any(api.call("GET", f"/v1/sends?limit=1&status={status}")["data"] for status in ("queued", "running"))
    until("nothing is open", lambda: not open_(), 900)
    done = time.monotonic() - started
    until("one pod is left again", lambda: deployment.replicas == 1 and len(deployment.pods) == 1, 120)
    gone = check_gone([deployment], started)
    again = [send for send in api.all() if send["id"] in ids and send["attempts"] != 1]
    assert gone >= 5 and not again, f"{gone} pods gone, {len(again)} sends with another attempt: {again[:2]}"
    print(f"burst: {count} sends accepted in {accepted:.1f} s, all of six pods at work on them after {claimed:.1f} s, all done after {done:.1f} s; {gone} pods gone, 0 calls interrupted")


def zero(cluster, api, _):
    """A pool without pods is woken by a send, and sleeps again."""
    deployment, started = cluster.deployments[f"{NAME}-worker-night"], time.monotonic()
    until("no pod is left", lambda: deployment.replicas == 0 and not deployment.pods, 60)
    woken = time.monotonic()
    send = api.send("good night", f"night-{started}", "night")
    assert api.ended(send["id"])["status"] == "completed"
    took = time.monotonic() - woken
    until("no pod is left again", lambda: deployment.replicas == 0 and not deployment.pods, 60)
    print(f"zero: a send to a pool without pods was answered after {took:.1f} s, and the pod is gone again")


def costs(cluster, api, helm):
    """Of six pods, five are idle: they are taken away, and the one that works on something stays."""
    assert cluster.apply(render(helm, "--set", "worker.deletionCost.enabled=true")) is None
    until("all are new", lambda: all(d.done() for d in cluster.deployments.values()), 120)
    name, started = f"{NAME}-worker-default", time.monotonic()
    deployment = cluster.deployments[name]
    # Pods tell what has changed within five seconds: nobody is taken away before.
    cluster.scalers[name].down["stabilizationWindowSeconds"] = 12
    ids = [api.send("!sleep 4s hello", f"costs-{started}-{n}")["id"] for n in range(60)]
    until("six pods are ready", lambda: ready(deployment) == 6, 120)
    begun = len(deployment.taken)
    # Longer than a pod may take to end: taken away with its pod, it would be begun anew.
    long = api.send("!sleep 40s hello", f"costs-{started}-long")["id"]
    assert all(api.ended(id_)["status"] == "completed" for id_ in ids)
    until("one pod is left", lambda: deployment.replicas == 1 and len(deployment.pods) == 1, 120)
    left = deployment.pods[0]
    assert left.cost() == 1, f"{left.name} is left and costs {left.cost()}: {deployment.taken[begun:]}"
    send = api.ended(long)
    assert send["attempts"] == 1, send
    until("it is told that nothing is in flight", lambda: left.cost() == 0, 30)
    print(f"costs: {len(deployment.taken) - begun} idle pods taken away, which cost {sorted({cost for _, cost in deployment.taken[begun:]})}; the one with a send of 40 s stayed")


def drain(cluster, api, _):
    """Every other pod is evicted, as budgets allow, while others take over."""
    api.failures.clear()
    load, started = Load(api, 4, "!sleep 200ms hello", streams=2), time.monotonic()
    time.sleep(1)
    evicted = 0
    for deployment in cluster.deployments.values():
        for pod in [pod for pod in deployment.pods if pod.deleted is None][::2]:
            # maxUnavailable: 1
            until("the budget allows it", lambda: ready(deployment) >= deployment.replicas, 60)
            pod.delete()
            evicted += 1
    until("all are back", lambda: all(d.done() for d in cluster.deployments.values()), 120)
    sends = load.end()
    check_gone(cluster.deployments.values(), started)
    assert not api.failures, api.failures[:5]
    print(f"drain: {evicted} pods evicted under {sends} sends: 0 requests failed")


def restart(cluster, api):
    """Processes of the previous release die and start anew beside the schema of the next one."""
    killed = 0
    for deployment in cluster.deployments.values():
        for pod in [pod for pod in deployment.pods if pod.ready]:
            restarts = pod.restarts
            os.kill(pod.process.pid, signal.SIGKILL)
            until("it is ready again", lambda: pod.ready and pod.restarts > restarts, 60)
            killed += 1
    assert api.ended(api.send("still there?", f"restart-{time.monotonic()}")["id"])["status"] == "completed"
    print(f"restart: {killed} pods of the previous release, killed and back on the newer schema")


def crash(cluster, api, helm):
    """A release whose processes do not start replaces nothing, and the next one does."""
    api.failures.clear()
    load = Load(api, 2, "!sleep 100ms hello")
    bad = [f"{role}.extraEnv[0].{what}" for role in ("scheduler", "worker") for what in ("name=MAINSPRING_NO_SUCH_KEY", "value=x")]
    assert cluster.apply(render(helm, "--set", ",".join(bad))) is None
    names = (f"{NAME}-scheduler", f"{NAME}-worker-default")
    crashing = lambda: [max((pod.restarts for pod in cluster.deployments[name].pods), default=0) for name in names]
    until("both crash again and again", lambda: min(crashing()) >= 2, 60)
    assert all(ready(cluster.deployments[name]) >= cluster.deployments[name].replicas for name in names)
    restarts = sum(crashing())
    assert cluster.apply(render(helm)) is None
    until("all are well", lambda: all(d.done() for d in cluster.deployments.values()), 120)
    sends = load.end()
    assert not api.failures, api.failures[:5]
    print(f"crash: {restarts} restarts of pods that do not start, beside {sends} sends: 0 requests failed")


def memory(cluster, api, helm):
    """A pod that takes more memory than its limit is killed, again and again, and no other is; with enough, it works."""
    deployment = cluster.deployments[f"{NAME}-worker-night"]
    until("no pod is left", lambda: deployment.replicas == 0 and not deployment.pods, 60)
    tight = ",".join(f"pools.night.resources.{kind}.memory=8Mi" for kind in ("requests", "limits"))
    assert cluster.apply(render(helm, "--set", tight)) is None
    send = api.send("good night", f"memory-{time.monotonic()}", "night")
    killed = lambda deployment: sum(pod.out_of_memory for pod in deployment.everyone())
    until("its pod is killed twice", lambda: killed(deployment) >= 2, 60)
    assert cluster.apply(render(helm)) is None
    assert api.ended(send["id"])["status"] == "completed"
    others = [d for d in cluster.deployments.values() if d is not deployment]
    assert not sum(map(killed, others)), "a pod took more memory than its limit"
    most = {d.name.removeprefix(f"{NAME}-"): max(pod.most for pod in d.everyone()) >> 20 for d in others}
    print(f"memory: {killed(deployment)} kills of a pod with 8 MiB, its send was answered later; at most, in MiB of 1024: {most}")


def migration(cluster, api, helm):
    """A migration that fails changes nothing."""
    before = {name: [pod.name for pod in d.pods] for name, d in cluster.deployments.items()}
    hash_ = {name: d.hash for name, d in cluster.deployments.items()}
    output = cluster.apply(render(helm, "--set", "config.log=trace"), {"MAINSPRING_DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"})
    assert output, "the migration was to fail"
    time.sleep(1)
    assert hash_ == {name: d.hash for name, d in cluster.deployments.items()}
    assert before == {name: [pod.name for pod in d.pods] for name, d in cluster.deployments.items()}
    assert api.ended(api.send("still there?", f"migration-{time.monotonic()}")["id"])["status"] == "completed"
    print("migration: one that failed changed nothing")


CHAPTERS = {"upgrade": upgrade, "scale": scale, "zero": zero, "costs": costs, "drain": drain, "crash": crash, "memory": memory, "migration": migration}


def main():
    parser = argparse.ArgumentParser()
    for name in ("helm", "binary", "postgres", "redis"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--previous", help="the previous release's program: upgraded from, gone back to, and upgraded from again")
    parser.add_argument("--only", choices=sorted(CHAPTERS), help="this chapter and no other")
    parser.add_argument("--burst", type=int, help="so many sends at once, instead of everything else")
    given = parser.parse_args()
    binaries = {"": os.path.abspath(given.binary)}
    if given.previous:
        binaries["previous"] = os.path.abspath(given.previous)
    secrets = {
        "mainspring": {"database_url": given.postgres, "redis_url": given.redis, "root_key": ROOT_KEY},
        "keda": {"api_key": ROOT_KEY},
    }
    with tempfile.TemporaryDirectory(prefix="mainspring-stand-in-") as folder:
        kubernetes = Stub()
        kubernetes.token = "the-token-of-pods"
        cluster = Cluster(Node(binaries, secrets, folder, kubernetes))
        try:
            install(cluster, given.helm, *(PREVIOUS if given.previous else ()))
            api = Api(cluster.services[f"{NAME}-scheduler"])
            if given.previous:
                upgrade(cluster, api, given.helm, "from the previous release", ())
                upgrade(cluster, api, given.helm, "back to it", PREVIOUS)
                restart(cluster, api)
                upgrade(cluster, api, given.helm, "and again from it", ())
            elif given.burst:
                burst(cluster, api, given.burst)
            else:
                for chapter in [given.only] if given.only else CHAPTERS:
                    CHAPTERS[chapter](cluster, api, given.helm)
            sends = api.all()
            # One more: that of `helm test`.
            assert {send["id"] for send in sends} >= api.accepted and len(sends) == len(api.accepted) + 1, f"{len(sends)} sends, {len(api.accepted)} accepted"
            assert all(send["status"] == "completed" for send in sends)
        except BaseException:
            show_logs(folder)
            raise
        finally:
            cluster.stop()
        env = {"PATH": os.environ["PATH"], "MAINSPRING_DATABASE_URL": given.postgres}
        audit = subprocess.run([given.binary, "audit"], env=env, capture_output=True, text=True, timeout=300)
        assert audit.returncode == 0 and not audit.stdout, audit.stdout + audit.stderr
        check_gone(cluster.deployments.values())
    print(f"audit: {len(sends)} sends, none lost, doubled or failed, and every invariant holds")


def show_logs(folder):
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, "log")
        if os.path.exists(path):
            with open(path, errors="replace") as file:
                lines = file.readlines()[-4:]
            print(f"--- {name}", *lines, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
