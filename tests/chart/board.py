"""Whether each expression of the board has figures in it, asked of a Prometheus that scrapes the stand-in's pods."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

import yaml

from kubelet import get, until

# How long Prometheus watches before it is asked, and over which time rates are taken.
WATCHED = 20
RATE = "15s"

# Metrics that exist from their first event on, which this installation may not have seen: all is well, some is not used, and
# a whole pass of the audit takes a while.
EVENTS = {
    "mainspring_audit_pass_seconds",
    "mainspring_audit_violations_total",
    "mainspring_blobs_removed_total",
    "mainspring_bus_dropped_total",
    "mainspring_bus_gaps_total",
    "mainspring_http_overloaded_total",
    "mainspring_journal_behind_seconds",
    "mainspring_journal_lines_total",
    "mainspring_limits_hit_total",
    "mainspring_loop_failures_total",
    "mainspring_provider_circuit",
    "mainspring_provider_waits_total",
    "mainspring_rings_dropped_total",
    "mainspring_rows_unreadable_total",
    "mainspring_run_advances_lost_total",
    "mainspring_runs_aside_total",
    "mainspring_sessions_dispatched_total",
    "mainspring_sessions_undispatched_total",
    "mainspring_tenant_rows_erased_total",
    "mainspring_webhook_attempts_total",
    "mainspring_webhooks_disabled_total",
    "mainspring_worker_blobs_corrupt_total",
    "mainspring_database_went_back_total",
    "mainspring_worker_embeddings_total",
    "mainspring_worker_fenced_writes_total",
    "mainspring_worker_model_calls_failed_total",
    "mainspring_worker_model_cost_microdollars_total",
    "mainspring_worker_model_retries_total",
    "mainspring_worker_money_waits_total",
    "mainspring_worker_recalls_failed_total",
    "mainspring_worker_takeovers_total",
    "mainspring_worker_tool_call_seconds",
}


def targets(walk):
    """What the monitors that were rendered tell Prometheus to scrape, with the labels that its operator gives."""
    pods = []
    for name, deployment in walk.cluster.deployments.items():
        for pod in deployment.pods:
            labels = {"namespace": "agents", "pod": pod.name}
            if pool := pod.labels.get("mainspring/pool"):
                labels["mainspring_pool"] = pool
            pods.append({"targets": [f"{pod.ip}:{pod.port}"], "labels": labels})
    return pods


def expressions(walk):
    config = next(o for o in walk.objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "mainspring-dashboard")
    panels = json.loads(config["data"]["mainspring.json"])["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def filled(expression):
    return expression.replace("$namespace", "agents").replace("$__rate_interval", RATE)


def names(expression):
    return set(re.findall(r"mainspring_\w+?(?=_bucket\b|_sum\b|_count\b|\{|\b)", expression)) - {"mainspring_pool"}


def check(walk, work):
    prometheus = shutil.which("prometheus")
    return asked(walk, work, prometheus) if prometheus else scraped(walk)


def scraped(walk):
    """Without a Prometheus: each metric of the board is one that a pod shows, or one of an event."""
    text = "".join(get(f"http://{pod.ip}:{pod.port}/metrics", 5).decode() for d in walk.cluster.deployments.values() for pod in d.pods)
    shown = {name for expression in expressions(walk) for name in names(expression)}
    missing = sorted(name for name in shown - EVENTS if name not in text)
    assert not missing, f"no pod shows {missing}"
    return f"{len(shown)} metrics of the board are there (no Prometheus here)"


def asked(walk, work, program):
    folder = os.path.join(walk.folder, "prometheus")
    os.makedirs(folder)
    rules = next(o for o in walk.objects if o["kind"] == "PrometheusRule")["spec"]
    files = {
        "rules.yaml": rules,
        "pods.yaml": targets(walk),
        "prometheus.yaml": {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "mainspring", "file_sd_configs": [{"files": ["pods.yaml"]}]}],
        },
    }
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as file:
            yaml.safe_dump(content, file)
    url = f"http://{walk.node.address()}:9090"
    words = [program, "--config.file=prometheus.yaml", f"--web.listen-address={url.removeprefix('http://')}", "--storage.tsdb.path=data", "--log.level=warn"]
    with open(os.path.join(folder, "log"), "w") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
    try:
        up = lambda: count(url, "sum(up)") == len(files["pods.yaml"])
        until("Prometheus scrapes every pod", up, 60)
        end = time.monotonic() + WATCHED
        while time.monotonic() < end:
            work()
        return judged(url, expressions(walk))
    finally:
        process.terminate()
        process.wait(20)


def query(url, path, **parameters):
    return get(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", 10)["data"]


def count(url, expression):
    try:
        found = query(url, "query", query=expression)["result"]
    except OSError:
        return None
    return float(found[0]["value"][1]) if found else None


def judged(url, board):
    empty, figures = [], 0
    for expression in board:
        found = query(url, "query", query=filled(expression))["result"]
        numbers = [one["value"][1] for one in found if one["value"][1] != "NaN"]
        figures += len(numbers)
        if not numbers and not (names(expression) and names(expression) <= EVENTS):
            empty.append(expression)
    assert not empty, "nothing to see of\n" + "\n".join(empty)
    alerts = [alert["labels"]["alertname"] for alert in query(url, "alerts")["alerts"] if alert["state"] == "firing"]
    assert not alerts, f"all is well, and yet: {alerts}"
    return f"a board of {len(board)} expressions with {figures} figures, no alert"
