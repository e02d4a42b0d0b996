"""What a node, a Deployment's controller, a service and KEDA do to processes, without a cluster.

Containers' commands run as processes of this machine with the env, files, probes, preStop, SIGTERM and grace period
that were rendered. What is different from a cluster: a pod's address is one of 127.1.0.0/16, told to the process by
MAINSPRING_LISTEN and MAINSPRING_OPS_LISTEN in place of 0.0.0.0; a limit of memory is looked at four times a second; no
images, limits of processors, security contexts or network policies.
"""

import hashlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

# How long a service still sends connections to a pod that is going away: what preStop has to cover.
ENDPOINT_LAG = 1.0
BACKOFF = 1.0
# How often a pod's memory is looked at.
LOOK = 0.25


def get(url, timeout, headers=None):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=timeout) as answer:
        return json.loads(answer.read() or b"null") if "json" in (answer.headers["Content-Type"] or "") else answer.read()


def quantity(text):
    """Bytes, as Kubernetes writes them."""
    number, unit = re.fullmatch(r"(\d+)([KMG]i)?", str(text)).groups()
    return int(number) * 1024 ** ("KMG".index(unit[0]) + 1 if unit else 0)


def resident(pid):
    """Bytes of memory that a process and those that it started hold."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            held = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        children = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children += file.read().split()
    except (OSError, IndexError):
        # It has just ended.
        return 0
    return held + sum(resident(child) for child in children)


class Node:
    """What pods are made of here: programs by the tags of their images, Secrets by name, a folder for files and logs, and
    an API server that pods with an account may ask."""

    def __init__(self, binaries, secrets, folder, api=None):
        self.binaries, self.secrets, self.folder, self.api = binaries, secrets, folder, api
        self.addresses, self.lock = 1, threading.Lock()

    def binary(self, container):
        """The program of a container's image; of one whose tag says nothing here, the only one."""
        _, _, tag = container["image"].rpartition(":")
        return self.binaries.get(tag) or self.binaries[""]

    def address(self):
        with self.lock:
            self.addresses += 1
            return f"127.1.{self.addresses // 250}.{self.addresses % 250 + 1}"

    def env(self, container, name, files):
        env = {"PATH": os.environ["PATH"]}
        for variable in container["env"]:
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                env[variable["name"]] = self.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
            elif "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "metadata.name"
                env[variable["name"]] = name
            else:
                env[variable["name"]] = variable["value"]
        for mount, path in files.items():
            env = {key: value.replace(mount, path) for key, value in env.items()}
        return env


class Pod:
    """One process with the life of a pod. Ends as `exits` says; `killed` when its grace period was over."""

    def __init__(self, node, name, template, configs, hash_):
        self.node, self.name, self.hash, self.spec = node, name, hash_, template["spec"]
        self.labels = template["metadata"]["labels"]
        self.container = self.spec["containers"][0]
        self.ip, self.ready, self.deleted, self.gone = node.address(), False, None, threading.Event()
        self.restarts, self.exits, self.killed, self.was_ready = 0, [], False, False
        self.limit, self.most, self.out_of_memory = quantity(self.container["resources"]["limits"]["memory"]), 0, 0
        folder = os.path.join(node.folder, name)
        os.makedirs(folder)
        self.log = open(os.path.join(folder, "log"), "ab")
        files, account = {}, {}
        for mount in self.container.get("volumeMounts", []):
            volume = next(volume for volume in self.spec["volumes"] if volume["name"] == mount["name"])
            if "configMap" in volume:
                for file, text in configs[volume["configMap"]["name"]].items():
                    with open(os.path.join(folder, file), "w") as out:
                        out.write(text)
                files[mount["mountPath"]] = folder
            if "projected" in volume:
                for file, text in (("token", node.api.token), ("namespace", "agents")):
                    with open(os.path.join(folder, file), "w") as out:
                        out.write(text)
                account = {"MAINSPRING_WORKER_KUBERNETES_API": node.api.url, "MAINSPRING_WORKER_KUBERNETES_ACCOUNT": folder}
        self.env = node.env(self.container, name, files) | account
        if node.api:
            node.api.objects["Pod", name] = {"metadata": {"name": name, "annotations": {}}}
        self.port = self.container.get("ports", [{}])[0].get("containerPort")
        if self.port:
            which = "MAINSPRING_LISTEN" if self.container["args"][0] == "scheduler" else "MAINSPRING_OPS_LISTEN"
            self.env[which] = f"{self.ip}:{self.port}"
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def start(self):
        return subprocess.Popen([self.node.binary(self.container), *self.container["args"]], env=self.env, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, cwd=self.node.folder)

    def probe(self, name):
        probe = self.container[name]
        try:
            get(f"http://{self.ip}:{self.port}{probe['httpGet']['path']}", probe.get("timeoutSeconds", 1))
            return True
        except OSError:
            return False

    def live(self):
        try:
            while self.deleted is None:
                process = self.process = self.start()
                self.watch(process)
                if self.deleted is not None:
                    self.stop(process)
                    break
                self.ready = False
                self.exits.append(process.wait())
                self.restarts += 1
                time.sleep(min(BACKOFF * 2**self.restarts, 10))
        finally:
            self.ready = False
            self.log.close()
            self.gone.set()

    def watch(self, process):
        """Probes until the process ends, must end, or the pod is deleted."""
        failed = {"startupProbe": 0, "livenessProbe": 0, "readinessProbe": 0}
        due, look = {"startupProbe": time.monotonic()}, 0.0
        while self.deleted is None and process.poll() is None:
            if time.monotonic() >= look:
                look = time.monotonic() + LOOK
                self.weigh(process)
            for name in [name for name, at in due.items() if time.monotonic() >= at]:
                probe = self.container[name]
                due[name] = time.monotonic() + probe.get("periodSeconds", 10)
                failed[name] = 0 if self.probe(name) else failed[name] + 1
                if name == "startupProbe" and not failed[name]:
                    due = {"livenessProbe": time.monotonic(), "readinessProbe": time.monotonic()}
                    break
                over = failed[name] >= probe.get("failureThreshold", 3)
                if name == "readinessProbe":
                    self.ready = not failed[name] or (self.ready and not over)
                elif over:
                    process.kill()
            time.sleep(0.05)

    def weigh(self, process):
        """Kills the process where it and its children hold more memory than the container's limit."""
        held = resident(process.pid)
        self.most = max(self.most, held)
        if held > self.limit:
            self.out_of_memory += 1
            process.kill()

    def stop(self, process):
        end = self.deleted + self.spec["terminationGracePeriodSeconds"]
        time.sleep(self.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))
        process.send_signal(signal.SIGTERM)
        try:
            self.exits.append(process.wait(max(0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            self.killed = True
            process.kill()
            self.exits.append(process.wait())

    def delete(self):
        if self.deleted is None:
            self.was_ready, self.deleted = self.ready, time.monotonic()

    def cost(self):
        """What the controller of a Deployment goes by when it chooses which pod to take away."""
        annotations = self.node.api.objects["Pod", self.name]["metadata"]["annotations"] if self.node.api else {}
        return int(annotations.get("controller.kubernetes.io/pod-deletion-cost", 0))

    def served(self):
        """Whether a service still sends connections here."""
        if self.deleted is not None:
            return self.was_ready and time.monotonic() < self.deleted + ENDPOINT_LAG
        return self.ready


class Deployment:
    """Keeps as many pods of the newest template as it is told, and replaces others one by one."""

    def __init__(self, node, name):
        self.node, self.name, self.pods, self.past, self.made = node, name, [], [], 0
        self.replicas = None
        # Pods that were taken away while they served, with what they cost then.
        self.taken = []

    def apply(self, object_, configs):
        template = object_["spec"]["template"]
        self.hash = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
        self.template, self.configs = template, configs
        # Left out where an autoscaler decides; a new one begins with one.
        self.replicas = object_["spec"].get("replicas", self.replicas if self.replicas is not None else 1)

    def step(self):
        self.past += [pod for pod in self.pods if pod.gone.is_set()]
        self.pods = [pod for pod in self.pods if not pod.gone.is_set()]
        alive = [pod for pod in self.pods if pod.deleted is None]
        new = [pod for pod in alive if pod.hash == self.hash]
        old = [pod for pod in alive if pod.hash != self.hash]
        surge = 1 if old else 0
        if len(new) < self.replicas and len(alive) < self.replicas + surge:
            self.made += 1
            self.pods.append(Pod(self.node, f"{self.name}-{self.hash}-{self.made}", self.template, self.configs, self.hash))
        elif len(alive) > self.replicas:
            ready = [pod for pod in alive if pod.ready]
            # The ones that serve nobody first, then old ones while enough are ready, then the newest.
            spare = [pod for pod in old + new[::-1] if not pod.ready] if len(new) > self.replicas or not old else [pod for pod in old if not pod.ready]
            if spare:
                spare[0].delete()
            elif len(ready) > self.replicas:
                chosen = min(old or new[::-1], key=Pod.cost)
                self.taken.append((chosen.name, chosen.cost()))
                chosen.delete()

    def done(self):
        alive = [pod for pod in self.pods if pod.deleted is None]
        return len(alive) == self.replicas and all(pod.ready and pod.hash == self.hash for pod in alive) and len(self.pods) == len(alive)

    def everyone(self):
        return self.pods + self.past


class Service:
    """Takes connections on one address and hands each to a pod that is ready, in turn."""

    def __init__(self, deployment, port):
        self.deployment, self.turn = deployment, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port, self.target = self.listener.getsockname()[1], port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        pods = [pod for pod in self.deployment.pods if pod.served()]
        self.turn += 1
        try:
            server = socket.create_connection((pods[self.turn % len(pods)].ip, self.target), timeout=5)
        except (OSError, ZeroDivisionError):
            client.close()
            return
        server.settimeout(None)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Scaler:
    """KEDA and the HPA that it makes, for a ScaledObject with one trigger of the kind metrics-api."""

    def __init__(self, object_, authentication, secrets, deployment, service):
        spec, self.deployment = object_["spec"], deployment
        self.least, self.most = spec["minReplicaCount"], spec["maxReplicaCount"]
        self.interval, self.cooldown = spec["pollingInterval"], spec["cooldownPeriod"]
        self.down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
        meta = spec["triggers"][0]["metadata"]
        path = re.fullmatch(r"http://[^/]+\.svc:\d+(/v1/scaling/.+)", meta["url"])[1]
        self.url, self.member = service.url + path, meta["valueLocation"]
        self.target, self.activation = float(meta["targetValue"]), float(meta["activationTargetValue"])
        assert meta["authMode"] == "bearer" and authentication["spec"]["secretTargetRef"][0]["parameter"] == "token"
        reference = authentication["spec"]["secretTargetRef"][0]
        self.token = secrets[reference["name"]][reference["key"]]
        self.wanted, self.active, self.taken, self.errors, self.seen = [], 0.0, [], 0, []
        # autoscaling.keda.sh/paused
        self.paused = False
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        while True:
            try:
                if not self.paused:
                    self.decide(get(self.url, 3, {"Authorization": f"Bearer {self.token}"})[self.member])
            except OSError:
                self.errors += 1
            time.sleep(self.interval)

    def decide(self, demand):
        now, current = time.monotonic(), self.deployment.replicas
        self.seen.append((now, demand, current))
        if demand > self.activation:
            self.active = now
        elif current == 0 and self.least == 0:
            return
        wanted = min(self.most, max(self.least, 1, math.ceil(demand / self.target)))
        self.wanted.append((now, wanted))
        self.wanted = [(at, n) for at, n in self.wanted if at > now - self.down["stabilizationWindowSeconds"]] or [(now, wanted)]
        if wanted > current:
            self.deployment.replicas = wanted
            return
        # Down: the most that was wanted lately, in steps, and to zero only after the cooldown.
        least = max(n for _, n in self.wanted)
        if self.least == 0 and demand <= self.activation and now - self.active > self.cooldown:
            least = 0
        policy = self.down["policies"][0]
        self.taken = [(at, n) for at, n in self.taken if at > now - policy["periodSeconds"]]
        step = min(current - least, policy["value"] - sum(n for _, n in self.taken))
        if step > 0:
            self.taken.append((now, step))
            self.deployment.replicas = current - step


class Cluster:
    """Applies rendered manifests: hooks first, then everything else."""

    def __init__(self, node):
        self.node, self.deployments, self.services, self.scalers, self.jobs = node, {}, {}, {}, 0
        self.lock, self.ending = threading.Lock(), False
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        while not self.ending:
            with self.lock:
                for deployment in self.deployments.values():
                    deployment.step()
            time.sleep(0.1)

    def job(self, object_, overrides=None):
        """Runs a Job's container to its end; its exit code and output."""
        self.jobs += 1
        container = object_["spec"]["template"]["spec"]["containers"][0]
        env = self.node.env(container, f"job-{self.jobs}", {}) | (overrides or {})
        done = subprocess.run([self.node.binary(container), *container["args"]], env=env, capture_output=True, text=True, timeout=120, cwd=self.node.folder)
        return done.returncode, done.stdout + done.stderr

    def apply(self, objects, overrides=None):
        """What helm does: nothing is changed where a hook fails."""
        hooked = lambda o, name: name in o["metadata"].get("annotations", {}).get("helm.sh/hook", "")
        for o in objects:
            if hooked(o, "pre-upgrade"):
                code, output = self.job(o, overrides)
                if code:
                    return output
        configs = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
        named = {(o["kind"], o["metadata"]["name"]): o for o in objects}
        with self.lock:
            for (kind, name), o in named.items():
                if kind == "Deployment":
                    self.deployments.setdefault(name, Deployment(self.node, name)).apply(o, configs)
        for (kind, name), o in named.items():
            if kind == "Service" and name not in self.services:
                self.services[name] = Service(self.deployments[name], o["spec"]["ports"][0]["port"])
        for (kind, name), o in named.items():
            if kind == "ScaledObject" and name not in self.scalers:
                service = next(iter(self.services.values()))
                self.scalers[name] = Scaler(o, named["TriggerAuthentication", name], self.node.secrets, self.deployments[name], service)
        return None

    def stop(self):
        with self.lock:
            self.ending = True
        for deployment in self.deployments.values():
            for pod in deployment.pods:
                pod.delete()
        for deployment in self.deployments.values():
            for pod in deployment.everyone():
                pod.gone.wait(120)


def until(what, holds, seconds):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)
