"""Validates a list of components in CycloneDX against its schema, strictly, and looks for what must be in it."""

import json
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = open(sys.argv[1]).read()
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
if fault:
    sys.exit(f"sbom: {fault!r}")
components = {component["name"]: component for component in json.loads(text)["components"]}
for name in ("mainspring-worker", "libsqlite3-sys", "ring", "tokio"):
    if name not in components:
        sys.exit(f"sbom: there is no {name}")
for name, component in components.items():
    if "purl" in component and not (component.get("hashes") and component.get("licenses")):
        sys.exit(f"sbom: {name} has no hash or no licence")
if "insta" in components or "serde_derive" in components:
    sys.exit("sbom: it has what is not in the program")
print(f"sbom: {len(components)} components")
