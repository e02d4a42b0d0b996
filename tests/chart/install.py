"""What helm does to a cluster with the chart: installed, upgraded, rolled back, tested and uninstalled on a stub."""

import os
import subprocess
import tempfile

from stub import Stub

RELEASE = "rel"
NAMESPACE = "agents"


class Helm:
    def __init__(self, program, chart, url, folder):
        self.program, self.chart, self.folder = program, chart, folder
        self.config = os.path.join(folder, "kubeconfig")
        with open(self.config, "w") as file:
            file.write(
                "apiVersion: v1\nkind: Config\ncurrent-context: stub\n"
                f"clusters: [{{name: stub, cluster: {{server: '{url}'}}}}]\n"
                "users: [{name: stub, user: {}}]\ncontexts: [{name: stub, context: {cluster: stub, user: stub}}]\n"
            )
        os.chmod(self.config, 0o600)

    def __call__(self, *words, fails=False):
        env = {"PATH": os.environ["PATH"], "HOME": self.folder, "KUBECONFIG": self.config}
        done = subprocess.run([self.program, "-n", NAMESPACE, *words], env=env, capture_output=True, text=True, timeout=300)
        assert (done.returncode != 0) == fails, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr


def check(program, chart, values):
    with tempfile.TemporaryDirectory() as folder:
        stub = Stub()
        helm = Helm(program, chart, stub.url, folder)
        run(stub, helm, chart, os.path.join(chart, "ci", values))


def writes(stub, kinds):
    """What was written of these kinds since the last look, without releases' own records."""
    log, stub.log[:] = list(stub.log), []
    return [(verb, kind, name) for verb, kind, name in log if kind in kinds]


def run(stub, helm, chart, values):
    scheduler = ("Deployment", f"{RELEASE}-mainspring-scheduler")
    worker = ("Deployment", f"{RELEASE}-mainspring-worker-default")
    migrate = ("Job", f"{RELEASE}-mainspring-migrate")
    kinds = {"Deployment", "Job"}

    out = helm("install", RELEASE, chart, "-f", values)
    assert "Next, wait for the schedulers" in out, out
    log = writes(stub, kinds)
    assert log[:2] == [("POST", *migrate), ("DELETE", *migrate)], f"the schema comes first: {log}"
    assert ("POST", *scheduler) in log and ("POST", *worker) in log, log
    assert "replicas" not in stub.objects[worker]["spec"], "what is scaled has no replicas of its own"

    # What an autoscaler has decided stays, and a changed setting rolls the pods that it concerns.
    stub.objects[worker]["spec"]["replicas"] = 7
    before = {key: stub.objects[key]["spec"]["template"] for key in (scheduler, worker)}
    helm("upgrade", RELEASE, chart, "-f", values, "--set", "pools.default.config.retry.attempts_max=7")
    log = writes(stub, kinds)
    assert log[:2] == [("POST", *migrate), ("DELETE", *migrate)], log
    assert stub.objects[worker]["spec"]["replicas"] == 7
    assert stub.objects[worker]["spec"]["template"] != before[worker], "the pool's pods are replaced"
    assert stub.objects[scheduler]["spec"]["template"] == before[scheduler], "schedulers are left alone"
    assert "attempts_max = 7" in stub.objects["ConfigMap", worker[1]]["data"]["mainspring.toml"]

    # A migration that fails stops the upgrade before anything else is touched.
    stub.failing = True
    out = helm("upgrade", RELEASE, chart, "-f", values, "--set", "image.digest=", fails=True)
    stub.failing = False
    assert "pre-upgrade hooks failed" in out, out
    assert all(kind == "Job" for _, kind, _ in writes(stub, kinds))

    helm("rollback", RELEASE, "1")
    log = writes(stub, kinds)
    assert all(kind != "Job" for _, kind, _ in log), f"the schema is never taken back: {log}"
    assert stub.objects[worker]["spec"]["template"] == before[worker]
    assert stub.objects[worker]["spec"]["replicas"] == 7

    helm("test", RELEASE)
    assert writes(stub, kinds) == [("POST", "Job", f"{RELEASE}-mainspring-test")]
    history = helm("history", RELEASE)
    assert [line.split()[0] for line in history.splitlines()[1:]] == ["1", "2", "3", "4"], history
    helm("uninstall", RELEASE)
    left = sorted(key for key in stub.objects if key[0] != "Job")
    assert left == [], f"left behind: {left}"
