"""An API server of Kubernetes that only remembers: enough for helm to install, upgrade, roll back and uninstall.

Nothing runs. A Job is complete when it is made, or failed where `failing` says so. `log` has what was written, in order.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

# Group and version, then plural names and kinds.
RESOURCES = {
    "v1": {"configmaps": "ConfigMap", "secrets": "Secret", "services": "Service", "serviceaccounts": "ServiceAccount", "pods": "Pod"},
    "apps/v1": {"deployments": "Deployment"},
    "batch/v1": {"jobs": "Job"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "rbac.authorization.k8s.io/v1": {"roles": "Role", "rolebindings": "RoleBinding"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy", "ingresses": "Ingress"},
    "keda.sh/v1alpha1": {"scaledobjects": "ScaledObject", "triggerauthentications": "TriggerAuthentication"},
    "monitoring.coreos.com/v1": {"servicemonitors": "ServiceMonitor", "podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"},
    "gateway.networking.k8s.io/v1": {"httproutes": "HTTPRoute"},
}
PATH = re.compile(r"^/(?:api/(v1)|apis/([^/]+/[^/]+))/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?$")


def merged(old, patch):
    """A JSON merge patch, where lists of named things are merged by name, as in a strategic merge patch."""
    if isinstance(old, dict) and isinstance(patch, dict):
        new = dict(old)
        for key, value in patch.items():
            if key.startswith(("$setElementOrder", "$retainKeys")):
                continue
            if value is None:
                new.pop(key, None)
            else:
                new[key] = merged(old.get(key), value)
        return new
    for key in ("name", "mountPath", "containerPort", "port", "topologyKey"):
        items = patch if isinstance(patch, list) else []
        if items and isinstance(old, list) and all(isinstance(i, dict) and key in i for i in items + old):
            by_key = {item[key]: item for item in old}
            for item in items:
                if item.get("$patch") == "delete":
                    by_key.pop(item[key], None)
                else:
                    by_key[item[key]] = merged(by_key.get(item[key], {}), item)
            return list(by_key.values())
    return patch


class Stub:
    def __init__(self):
        # Who may write, by the token; everyone where none is named.
        self.objects, self.log, self.failing, self.token = {}, [], False, None
        self.version, self.lock = 0, threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answered(self):
                if stub.token and self.headers.get("Authorization") != f"Bearer {stub.token}":
                    self.send_error(401)
                    return
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                status, answer = stub.serve(self.command, self.path, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answered

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def serve(self, command, path, body):
        url = urlparse(path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if (discovered := discovery(url.path)) is not None:
            return 200, discovered
        found = PATH.match(url.path)
        group, plural = (found[1] or found[2], found[4]) if found else ("", "")
        if plural not in RESOURCES.get(group, {}):
            return 404, failure(404, "NotFound", url.path)
        with self.lock:
            if "watch" in query:
                return 200, self.watched(RESOURCES[group][plural], query)
            return self.done(command, group, RESOURCES[group][plural], found[3], found[5], body, query)

    def done(self, command, group, kind, namespace, name, body, query):
        key = (kind, name or body.get("metadata", {}).get("name"))
        if command == "GET" and not name:
            items = [value for (of, _), value in sorted(self.objects.items()) if of == kind and selected(value, query)]
            return 200, {"apiVersion": group, "kind": f"{kind}List", "metadata": {"resourceVersion": str(self.version)}, "items": items}
        if command == "POST":
            if key in self.objects:
                return 409, failure(409, "AlreadyExists", key[1])
        elif key not in self.objects:
            return 404, failure(404, "NotFound", key[1])
        if command == "GET":
            return 200, self.objects[key]
        self.log.append((command, *key))
        if command == "DELETE":
            del self.objects[key]
            return 200, {"apiVersion": "v1", "kind": "Status", "status": "Success"}
        new = merged(self.objects[key], body) if command == "PATCH" else body
        self.version += 1
        new.setdefault("metadata", {}).update(namespace=namespace, uid=f"{kind}-{key[1]}", resourceVersion=str(self.version))
        if kind == "Job":
            end = "Failed" if self.failing else "Complete"
            new["status"] = {"conditions": [{"type": end, "status": "True", "reason": "Stub"}], "succeeded": 0 if self.failing else 1}
        self.objects[key] = new
        return 201 if command == "POST" else 200, new

    def watched(self, kind, query):
        """A stream that says what is there and ends."""
        events = [{"type": "MODIFIED", "object": value} for (of, _), value in self.objects.items() if of == kind and selected(value, query)]
        return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def selected(value, query):
    meta = value["metadata"]
    said = [(f"metadata.name={meta['name']}", "fieldSelector")] + [(f"{key}={text}", "labelSelector") for key, text in meta.get("labels", {}).items()]
    wanted = [(part, kind) for kind in ("fieldSelector", "labelSelector") for part in query.get(kind, "").split(",") if part]
    return all(part in said for part in wanted)


def failure(code, reason, name):
    return {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"{name}: {reason}"}


def discovery(path):
    if path == "/version":
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
    if path == "/openapi/v2":
        return b""
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        versions = [(name.split("/")[0], {"groupVersion": name, "version": name.split("/")[1]}) for name in RESOURCES if "/" in name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": group, "versions": [version], "preferredVersion": version} for group, version in versions]}
    group = path.removeprefix("/apis/").removeprefix("/api/")
    if group not in RESOURCES or not path.startswith("/api"):
        return None
    common = {"singularName": "", "namespaced": True, "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}
    resources = [{"name": plural, "kind": kind, **common} for plural, kind in RESOURCES[group].items()]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}
