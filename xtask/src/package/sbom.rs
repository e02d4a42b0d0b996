//! The list of what is in the program, as CycloneDX.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::contents::{document, said};
use super::elf::Processor;

/// The crate of the program.
const PROGRAM: &str = "mainspring-cli";

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// `None`: it is a member of this workspace.
    source: Option<String>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `dev` or `build`; `None` for what is linked.
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Lists the crates that are linked into the program, from cargo's own resolution and lock file.
pub(super) fn make(processor: &Processor, created: &str) -> anyhow::Result<Vec<u8>> {
    let platform = format!("{}-unknown-linux-musl", processor.name);
    let metadata = said(
        Command::new("cargo")
            .args(["metadata", "--locked", "--format-version=1"])
            .args(["--filter-platform", &platform]),
    )?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
    let lock = String::from_utf8(document("Cargo.lock")?)?;
    let lock: Lock = toml::from_str(&lock).context("Cargo.lock")?;
    let bom = bom(&metadata, &lock, created)?;
    Ok(serde_json::to_vec_pretty(&bom)?)
}

fn bom(metadata: &Metadata, lock: &Lock, created: &str) -> anyhow::Result<Value> {
    let packages: BTreeMap<&str, &Package> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), package))
        .collect();
    let nodes: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let checksums: BTreeMap<(&str, &str), &str> = lock
        .package
        .iter()
        .filter_map(|locked| {
            let checksum = locked.checksum.as_deref()?;
            Some(((locked.name.as_str(), locked.version.as_str()), checksum))
        })
        .collect();
    let root = metadata
        .packages
        .iter()
        .find(|package| package.name == PROGRAM)
        .with_context(|| format!("there is no {PROGRAM}"))?;
    let mut linked = BTreeMap::new();
    let mut open = vec![root];
    while let Some(package) = open.pop() {
        if linked.contains_key(&reference(package)) {
            continue;
        }
        let node = nodes.get(package.id.as_str()).context("a node")?;
        let needs: Vec<&Package> = node
            .deps
            .iter()
            .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()))
            .filter_map(|dependency| packages.get(dependency.pkg.as_str()).copied())
            .filter(|package| !is_macro(package))
            .collect();
        open.extend(&needs);
        let needs: BTreeSet<String> = needs.into_iter().map(reference).collect();
        linked.insert(reference(package), (package, needs));
    }
    let components: Vec<Value> = linked
        .values()
        .filter(|(package, _)| package.id != root.id)
        .map(|(package, _)| {
            let checksum = checksums.get(&(package.name.as_str(), package.version.as_str()));
            component(package, "library", checksum.copied())
        })
        .collect();
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|(name, (_, needs))| json!({ "ref": name, "dependsOn": needs }))
        .collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "timestamp": created, "component": component(root, "application", None) },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Whether it only runs while others are compiled.
fn is_macro(package: &Package) -> bool {
    let mut kinds = package.targets.iter().flat_map(|target| &target.kind);
    kinds.any(|kind| kind == "proc-macro")
}

fn reference(package: &Package) -> String {
    format!(
        "pkg:cargo/{}@{}",
        package.name,
        package.version.replace('+', "%2B")
    )
}

fn component(package: &Package, kind: &str, checksum: Option<&str>) -> Value {
    let reference = reference(package);
    let mut component = json!({
        "type": kind,
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
    });
    if package.source.is_some() {
        component["purl"] = json!(reference);
    }
    if let Some(license) = &package.license {
        // The older way of cargo to write a choice.
        let license = license.replace('/', " OR ").replace("  ", " ");
        component["licenses"] = json!([{ "expression": license }]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_builds_or_tests_is_not() {
        let package = |name: &str, kind: &str, source: Option<&str>| {
            json!({
                "id": name, "name": name, "version": "1.0.0+x", "license": "MIT/Apache-2.0",
                "source": source, "targets": [{ "kind": [kind] }],
            })
        };
        let needs = |name: &str, kinds: &[Option<&str>]| {
            let kinds: Vec<_> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
            json!({ "pkg": name, "dep_kinds": kinds })
        };
        let metadata = json!({
            "packages": [
                package(PROGRAM, "bin", None),
                package("linked", "lib", Some("registry")),
                package("below", "lib", Some("registry")),
                package("builds", "lib", Some("registry")),
                package("derives", "proc-macro", Some("registry")),
                package("tests", "lib", Some("registry")),
            ],
            "resolve": { "nodes": [
                { "id": PROGRAM, "deps": [
                    needs("linked", &[Some("build"), None]), needs("builds", &[Some("build")]),
                    needs("derives", &[None]), needs("tests", &[Some("dev")]),
                ] },
                { "id": "linked", "deps": [needs("below", &[None])] },
                { "id": "below", "deps": [needs("linked", &[None])] },
                { "id": "builds", "deps": [] },
                { "id": "derives", "deps": [] },
                { "id": "tests", "deps": [] },
            ] },
        });
        let metadata = serde_json::from_value(metadata).expect("as cargo has it");
        let lock = "[[package]]\nname = \"linked\"\nversion = \"1.0.0+x\"\nchecksum = \"ab\"\n";
        let lock = toml::from_str(lock).expect("as cargo has it");
        let bom = bom(&metadata, &lock, "2026-01-02T03:04:05Z").expect("a list");
        let names = bom["components"].as_array().expect("a list").iter();
        let names: Vec<_> = names.map(|component| &component["name"]).collect();
        assert_eq!(names, ["below", "linked"]);
        let linked = &bom["components"][1];
        assert_eq!(linked["purl"], "pkg:cargo/linked@1.0.0%2Bx");
        assert_eq!(linked["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(linked["hashes"][0]["content"], "ab");
        let program = format!("pkg:cargo/{PROGRAM}@1.0.0%2Bx");
        assert_eq!(bom["metadata"]["component"]["bom-ref"], program);
        let depends = bom["dependencies"].as_array().expect("a list");
        let of_program = depends.iter().find(|entry| entry["ref"] == program);
        assert_eq!(
            of_program.expect("its own")["dependsOn"],
            json!(["pkg:cargo/linked@1.0.0%2Bx"])
        );
    }
}
