"""What must hold of helm/mainspring and deploy/: rendered, validated, scanned, refused, installed on a stub.

Run by `cargo xtask chart`, from the top of the sources. UPDATE_DOCS=1 writes what is generated: the snapshots, and the
configuration's part of the schema of values.
"""

import argparse
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import kubernetes_validate
import yaml

import alerts
import install

CHART = "helm/mainspring"
HERE = "tests/chart"
VERSIONS = ["1.29", "1.34", kubernetes_validate.latest_version().rsplit(".", 1)[0]]
UPDATE = bool(os.environ.get("UPDATE_DOCS"))
# Of the release v3.10.1, which the package only carries.
HELM_SHA256 = "8c375d1016b2c9754bad8da3ed07ce33c0f9af3bad8890e61737f5137be7396d"
# Variables that are no settings: the file's name.
NOT_SETTINGS = {"MAINSPRING_CONFIG"}
# A label that the PodMonitor makes of the pool's.
NOT_METRICS = {"mainspring_pool"}

problems = []


def problem(text):
    problems.append(text)


def same(path, text):
    """Compares with a committed file, or writes it."""
    committed = open(path).read() if os.path.exists(path) else ""
    if committed == text:
        return
    if UPDATE:
        with open(path, "w") as file:
            file.write(text)
        return
    lines = zip(committed.splitlines() + [""], text.splitlines() + [""])
    at = next((n for n, (old, new) in enumerate(lines, 1) if old != new), 0)
    problem(f"{path} is out of date from line {at} on: look at the difference after UPDATE_DOCS=1 cargo xtask chart")


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **more)


def template(helm, values, version, *more):
    return run(helm, "template", "rel", CHART, "-n", "agents", "--kube-version", version, "-f", values, *more)


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


# --- the configuration's names


def config_schema():
    return json.load(open("docs/config.schema.json"))


def check_values_schema():
    """The chart takes the program's settings under the program's names."""
    path = f"{CHART}/values.schema.json"
    schema = json.load(open(path))
    config = {key: value for key, value in config_schema().items() if key not in ("$schema", "title")}
    config["description"] = "Settings under their names in the configuration file."
    schema["definitions"]["config"] = config
    same(path, json.dumps(schema, indent=2) + "\n")
    jsonschema.Draft7Validator.check_schema(schema)
    undescribed(schema, "values")


def undescribed(schema, at):
    for name, member in schema.get("properties", {}).items():
        if "description" not in member and "$ref" not in member:
            problem(f"values.schema.json: {at}.{name} has no description")
        undescribed(member, f"{at}.{name}")


def variables(schema, path=()):
    """The names of the variables of all settings; `*` where people choose a name."""
    for name, member in schema.get("properties", {}).items():
        if member.get("type") == "object" and "properties" in member:
            yield from variables(member, (*path, name))
        else:
            yield "_".join(("MAINSPRING", *path, name)).upper()


def check_variables(env, settings, where):
    for name in env:
        if name.startswith("MAINSPRING_") and name not in settings | NOT_SETTINGS:
            problem(f"{where}: {name} is no setting of docs/config.schema.json")


def check_toml(text, where, binary):
    try:
        config = tomllib.loads(text)
        jsonschema.validate(config, config_schema())
    except (tomllib.TOMLDecodeError, jsonschema.ValidationError) as error:
        return problem(f"{where}: {error}")
    if binary:
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            read = run(binary, "--config", file.name, "--print-config", env={"PATH": os.environ["PATH"]})
        if read.returncode:
            problem(f"{where}: the program refuses it: {read.stderr}")


# --- pods


def seconds(duration):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h|d)", duration).groups()
    return -(-int(number) * {"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": 86400000}[unit] // 1000)


def stopping(config, role, pause):
    """Seconds that a process needs to stop, by its configuration."""
    if role == "scheduler":
        return pause + seconds(config["scheduler"]["drain_timeout"]) + 5
    return seconds(config["worker"]["drain_timeout"]) + seconds(config["lease_ttl"]) + 5


def check_pods(objects, where, settings, pauses):
    """The restricted security standard, no token, no stray variables, probes, and time to stop."""
    configs = {o["metadata"]["name"]: o.get("data", {}) for o in objects if o["kind"] == "ConfigMap"}
    for o in objects:
        if o["kind"] not in ("Deployment", "Job"):
            continue
        at = f"{where}: {o['kind']} {o['metadata']['name']}"
        spec = o["spec"]["template"]["spec"]
        want = {
            "no token": spec.get("automountServiceAccountToken") is False,
            "no variables of services": spec.get("enableServiceLinks") is False,
            "not root": spec["securityContext"].get("runAsNonRoot") is True,
            "seccomp": spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault",
        }
        for container in spec["containers"]:
            context = container["securityContext"]
            want |= {
                "no more privileges": context.get("allowPrivilegeEscalation") is False,
                "a root that cannot be written": context.get("readOnlyRootFilesystem") is True,
                "no capabilities": context["capabilities"] == {"drop": ["ALL"]},
                "requests and a limit of memory": "requests" in container["resources"] and "memory" in container["resources"]["limits"],
            }
            env = container["env"]
            check_variables([variable["name"] for variable in env], settings, at)
            for variable in env:
                if re.search(r"(KEY|SECRET|URL|PASSWORD)$", variable["name"]) and "secretKeyRef" not in variable.get("valueFrom", {}):
                    problem(f"{at}: {variable['name']} is not of a Secret")
            mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
            want["each volume is mounted"] = {volume["name"] for volume in spec.get("volumes", [])} == mounted
            if o["kind"] == "Deployment":
                want["probes"] = {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
                role = container["args"][0]
                sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                want["a pause before it stops"] = role != "scheduler" or (sleep > 0) == pauses
                volume = next(volume for volume in spec["volumes"] if volume["name"] == "config")
                config = tomllib.loads(configs[volume["configMap"]["name"]]["mainspring.toml"])
                needed = stopping(config, role, sleep)
                grace = spec["terminationGracePeriodSeconds"]
                want[f"{needed} s to stop, not {grace}"] = grace >= needed
        for name, holds in want.items():
            if not holds:
                problem(f"{at}: {name}")


# --- the chart


def check_values_file(tools, values, settings):
    name = os.path.basename(values).removesuffix("-values.yaml")
    linted = run(tools.helm, "lint", "--strict", CHART, "-f", values)
    if linted.returncode:
        return problem(f"{values}: helm lint --strict: {linted.stdout}{linted.stderr}")
    for version in VERSIONS:
        rendered = template(tools.helm, values, version)
        if rendered.returncode:
            return problem(f"{values}: {rendered.stderr}")
        objects = documents(rendered.stdout)
        validate(objects, f"{values} on Kubernetes {version}", [version])
        check_pods(objects, f"{values} on Kubernetes {version}", settings, float(version.split(".")[1]) >= 30)
        if version == VERSIONS[1]:
            shown = re.sub(r"(?m)^  mainspring\.json: \|\n(    .*\n| *\n)+", "  mainspring.json: (dashboards/mainspring.json)\n", rendered.stdout)
            same(f"{HERE}/snapshots/{name}.yaml", shown)
            check_operators(tools, objects, values)
            for o in objects:
                if o["kind"] == "ConfigMap" and "mainspring.toml" in o.get("data", {}):
                    check_toml(o["data"]["mainspring.toml"], f"{values}: {o['metadata']['name']}", tools.binary)
                if o["kind"] == "PrometheusRule":
                    check_rules(tools, o["spec"])
                if o["kind"] == "ConfigMap" and "mainspring.json" in o.get("data", {}):
                    assert json.loads(o["data"]["mainspring.json"])["panels"]


# What the scanner asks for and the chart does not do.
NOT_SCANNED = {
    "CKV_K8S_11": "A limit of CPU throttles a worker within its node's idle time; requests share it fairly.",
    "CKV_K8S_15": "Tags of releases do not move, and a pod starts while the registry is away.",
    "CKV_K8S_21": "The namespace is the release's: Helm gives it to whatever names none.",
    "CKV_K8S_35": "Secrets are read from the environment or from files, as the operator mounts them.",
    "CKV_K8S_43": "Which registry has the image is the operator's choice, and so is `image.digest`.",
}
# The overlays of kustomize name the tag.
NOT_SCANNED_IN_BASES = ["CKV_K8S_14"]


def scan(tools):
    """Snapshots of the chart and the plain manifests are what a scanner calls safe, but for the above."""
    scanned = 0
    for folder, framework, more in (
        (f"{HERE}/snapshots", "kubernetes", []),
        ("deploy", "kubernetes", NOT_SCANNED_IN_BASES),
    ):
        skipped = ",".join([*NOT_SCANNED, *more])
        done = run(tools.checkov, "-d", folder, "--framework", framework, "--skip-check", skipped, "--skip-download", "-o", "json")
        try:
            found = json.loads(done.stdout)
        except json.JSONDecodeError:
            problem(f"checkov on {folder}: {done.stdout}{done.stderr}")
            continue
        if not found.get("summary", found).get("passed"):
            problem(f"checkov found nothing to check in {folder} ({framework})")
            continue
        scanned += found["summary"]["passed"] + found["summary"]["failed"]
        for failed in found["results"]["failed_checks"]:
            problem(f"{folder}{failed['file_path']}: {failed['check_id']} {failed['check_name']}: {failed['resource']}")
    return scanned


def check_guides(tools):
    """What guides tell people to write is taken by the chart: each block of YAML is added to those before it."""
    for path in ("docs/guides/production.md", f"{CHART}/README.md"):
        blocks = re.findall(r"(?ms)^```yaml\n(.*?)^```$", open(path).read())
        assert blocks, path
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number, block in enumerate(blocks):
                files.append(os.path.join(folder, f"{number}.yaml"))
                with open(files[-1], "w") as file:
                    file.write(block)
                rendered = template(tools.helm, files[0], VERSIONS[1], *(word for name in files[1:] for word in ("-f", name)))
                if rendered.returncode:
                    problem(f"{path}: block {number + 1} of YAML: {rendered.stderr}")


def validate(objects, where, versions):
    for o in objects:
        for version in versions:
            try:
                kubernetes_validate.validate(o, version, strict=True)
            except kubernetes_validate.SchemaNotFoundError:
                if not o["apiVersion"].startswith(("keda.sh/", "monitoring.coreos.com/", "gateway.networking.k8s.io/")):
                    problem(f"{where}: Kubernetes {version} has no {o['apiVersion']} {o['kind']}")
            except kubernetes_validate.ValidationError as error:
                problem(f"{where}: {o['kind']} {o['metadata']['name']}: {error.message}")


def check_operators(tools, objects, where):
    ours = [o for o in objects if o["apiVersion"].startswith(("keda.sh/", "monitoring.coreos.com/", "gateway.networking.k8s.io/"))]
    lines = "".join(json.dumps(o) + "\n" for o in ours)
    checked = run("node", f"{HERE}/models.mjs", tools.models, input=lines)
    if checked.returncode:
        problem(f"{where}: {checked.stderr}")


def check_refused(tools):
    """Each bad value is refused with words, and each rule of the templates has a case."""
    cases = yaml.safe_load(open(f"{HERE}/refused.yaml"))

    def refuse(case):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(case["values"], file)
            file.flush()
            return template(tools.helm, f"{CHART}/ci/{case.get('base', 'minimal')}-values.yaml", VERSIONS[1], "-f", file.name)

    said = []
    with ThreadPoolExecutor(4) as pool:
        for case, done in zip(cases, pool.map(refuse, cases)):
            said.append(done.stderr)
            if done.returncode == 0:
                problem(f"not refused: {case['values']}")
            elif case["says"] not in done.stderr:
                problem(f"{case['values']}: does not say {case['says']!r} but {done.stderr}")
    rules = re.findall(r'fail (?:\(printf )?"((?:[^"\\]|\\.)*)"', open(f"{CHART}/templates/_validate.tpl").read())
    assert len(rules) > 15, rules
    for rule in rules:
        pattern = re.sub(r"%[sd]", ".*", re.escape(rule))
        if not any(re.search(pattern, text) for text in said):
            problem(f"refused.yaml has no case for: {rule}")
    return len(cases)


def check_names(tools):
    """Whatever Helm takes as the name of a release, the objects have names, and two releases have no object in common."""
    names = ["a" * length for length in range(1, 54)]
    names += ["mainspring-" + "b" * length for length in (1, 20, 28, 29, 40, 42)]
    names += ["a" * 38 + "--eeeee", "a" * 31 + "--" + "e" * 9, "prod" * 11 + "-eu-1", "prod" * 11 + "-eu-2"]

    def render(name):
        return run(tools.helm, "template", name, CHART, "--kube-version", VERSIONS[1], "-f", f"{CHART}/ci/minimal-values.yaml")

    owners = {}
    with ThreadPoolExecutor(4) as pool:
        for release, done in zip(names, pool.map(render, names)):
            if done.returncode:
                problem(f"release {release}: {done.stderr}")
            for document in documents(done.stdout):
                name = document["metadata"]["name"]
                if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) or len(name) > 63:
                    problem(f"release {release}: no name of an object: {name}")
                if owners.setdefault((document["kind"], name), release) != release:
                    problem(f"{owners[document['kind'], name]} and {release} both have the {document['kind']} {name}")


# --- metrics


def metrics_of_the_product():
    names = set()
    for path in glob.glob("**/*.rs", recursive=True):
        if not path.startswith(("target", "tests", "xtask")):
            names |= set(re.findall(r'= "(mainspring_[a-z_]+)";', open(path).read()))
    return names


def check_metrics(tools):
    known = metrics_of_the_product()
    assert len(known) > 20, known
    sample = open(f"{HERE}/metrics.txt").read()
    for name in known ^ set(re.findall(r"(?m)^# HELP (\S+)", sample)):
        problem(f"{HERE}/metrics.txt and the sources differ: {name}")
    if tools.promtool:
        checked = run(tools.promtool, "check", "metrics", input=sample)
        if checked.returncode or checked.stderr:
            problem(f"promtool check metrics: {checked.stdout}{checked.stderr}")
    board = open(f"{CHART}/dashboards/mainspring.json").read()
    rules = open(f"{CHART}/rules/mainspring.yaml").read()
    shown = {}
    for where, text in ((f"{CHART}/dashboards/mainspring.json", board), (f"{CHART}/rules/mainspring.yaml", rules)):
        used = set(re.findall(r"mainspring_[a-z_]+", text)) - NOT_METRICS
        shown[where] = {name if name in known else re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
        for name in shown[where] - known:
            problem(f"{where}: there is no metric {name}")
    for name in known - shown[f"{CHART}/dashboards/mainspring.json"]:
        problem(f"{CHART}/dashboards/mainspring.json does not show {name}")
    named = {rule["alert"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]}
    pages = {os.path.basename(path).removesuffix(".md") for path in glob.glob("docs/runbooks/*.md")} - {"README"}
    for name in named ^ pages:
        problem(f"docs/runbooks and {CHART}/rules/mainspring.yaml differ: {name}")
    return len(known), len(named)


def check_rules(tools, spec):
    if not tools.promtool:
        return
    # Its words are for people: what is compared is which alerts fire, with which labels.
    bare = {"groups": [{**group, "rules": [{**rule, "annotations": {}} for rule in group["rules"]]} for group in spec["groups"]]}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (
            ("rules.yaml", spec),
            ("bare.yaml", bare),
            ("tests.yaml", {"rule_files": ["bare.yaml"], "tests": alerts.cases(spec)}),
        ):
            with open(os.path.join(folder, name), "w") as file:
                yaml.safe_dump(content, file)
        for words in (("check", "rules", "rules.yaml"), ("test", "rules", "tests.yaml")):
            checked = run(tools.promtool, *words, cwd=folder)
            if checked.returncode:
                problem(f"promtool: {checked.stdout}{checked.stderr}")


# --- deploy


def check_compose(settings):
    path = "deploy/compose/compose.yaml"
    compose = yaml.safe_load(open(path))
    for name, service in compose["services"].items():
        env = service.get("environment", {})
        check_variables(env, settings, f"{path}: {name}")
        role = (service.get("command") or [""])[0]
        if role in ("scheduler", "worker"):
            if "MAINSPRING_SECRETS_KEY" not in env:
                problem(f"{path}: {name} has no key for secrets")
            drain = env.get("MAINSPRING_WORKER_DRAIN_TIMEOUT") if role == "worker" else default("scheduler.drain_timeout")
            config = {"lease_ttl": default("lease_ttl"), role: {"drain_timeout": drain}}
            if seconds(service["stop_grace_period"]) < stopping(config, role, 0):
                problem(f"{path}: {name} is killed before it has stopped")
    for line in open("deploy/compose/example.env"):
        if found := re.match(r"#?(MAINSPRING_\w+)=", line):
            check_variables([found[1]], settings, "deploy/compose/example.env")


def default(path):
    schema = config_schema()
    for part in path.split("."):
        schema = schema["properties"][part]
    return schema["default"]


def check_systemd(tools, settings):
    config = tomllib.load(open("deploy/systemd/mainspring.toml", "rb"))
    check_toml(open("deploy/systemd/mainspring.toml").read(), "deploy/systemd/mainspring.toml", tools.binary)
    config.setdefault("lease_ttl", default("lease_ttl"))
    for path in glob.glob("deploy/systemd/*.service"):
        text = open(path).read()
        check_variables(re.findall(r"(?m)^Environment=(\w+)=", text), settings, path)
        if "LoadCredential=secrets-key:" not in text or "\nEnvironment=MAINSPRING_SECRETS_KEY_FILE=%d/secrets-key\n" not in text:
            problem(f"{path}: there is no key for secrets")
        role = re.search(r"ExecStart=/usr/local/bin/mainspring (\w+)", text)[1]
        limit = re.search(r"TimeoutStopSec=(\w+)", text)[1]
        if seconds(limit) < stopping(config, role, 0):
            problem(f"{path}: it is killed before it has stopped")
        if tools.systemd_analyze:
            with tempfile.TemporaryDirectory() as folder:
                # The program itself need not be on this machine.
                copy = os.path.join(folder, os.path.basename(path))
                with open(copy, "w") as file:
                    file.write(re.sub(r"(?m)^ExecStart=.*", "ExecStart=/bin/true", text))
                verified = run(tools.systemd_analyze, "verify", "--man=no", copy)
            if verified.returncode or os.path.basename(path) in verified.stderr:
                problem(f"{path}: {verified.stderr}")


def check_kustomize(tools, settings):
    for path in ("deploy/kustomize/base/mainspring.toml", "deploy/kustomize/overlays/example/mainspring.toml"):
        check_toml(open(path).read(), path, tools.binary)
    if not tools.kubectl:
        return
    for folder in ("base", "overlays/example", "migrate"):
        built = run(tools.kubectl, "kustomize", f"deploy/kustomize/{folder}")
        if built.returncode:
            problem(f"deploy/kustomize/{folder}: {built.stderr}")
            continue
        objects = documents(built.stdout)
        validate(objects, f"deploy/kustomize/{folder}", VERSIONS)
        check_pods(objects, f"deploy/kustomize/{folder}", settings, True)
        for o in objects:
            if o["kind"] == "Deployment":
                env = [variable["name"] for variable in o["spec"]["template"]["spec"]["containers"][0]["env"]]
                if "MAINSPRING_SECRETS_KEY" not in env:
                    problem(f"deploy/kustomize/{folder}: {o['metadata']['name']} has no key for secrets")


def main():
    parser = argparse.ArgumentParser()
    for tool in ("helm", "models", "checkov", "promtool", "kubectl", "systemd-analyze", "binary"):
        parser.add_argument(f"--{tool}")
    tools = parser.parse_args()
    if hashlib.sha256(open(tools.helm, "rb").read()).hexdigest() != HELM_SHA256:
        sys.exit("chart: helm is not the program that it should be")
    version = tomllib.load(open("Cargo.toml", "rb"))["workspace"]["package"]["version"]
    if yaml.safe_load(open(f"{CHART}/Chart.yaml"))["appVersion"] != version:
        problem(f"{CHART}/Chart.yaml: appVersion is not {version}, the version of Cargo.toml")
    check_values_schema()
    settings = set(variables(config_schema()))
    values = sorted(glob.glob(f"{CHART}/ci/*-values.yaml"))
    with ThreadPoolExecutor(2) as pool:
        # The stub waits for helm more than it works.
        installed = pool.submit(install.check, tools.helm, CHART, "full-values.yaml")
        for path in values:
            check_values_file(tools, path, settings)
        scanned = scan(tools)
        check_guides(tools)
        refused = check_refused(tools)
        check_names(tools)
        metrics, pages = check_metrics(tools)
        check_compose(settings)
        check_systemd(tools, settings)
        check_kustomize(tools, settings)
        installed.result()
    for text in problems:
        print(f"chart: {text}", file=sys.stderr)
    skipped = [name for name in ("promtool", "kubectl", "systemd_analyze", "binary") if not getattr(tools, name)]
    print(
        f"chart: {len(values)} files of values on Kubernetes {', '.join(VERSIONS)}, {scanned} scans, {refused} values refused, {metrics} metrics, {pages} alerts, "
        f"installed on a stub; {len(problems)} problems" + (f"; skipped without {', '.join(skipped)}" if skipped else "")
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
