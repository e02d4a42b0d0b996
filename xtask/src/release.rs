//! Checks everything that a release needs, makes its packages, and says which commands publish it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::process::run;
use crate::{own_clients, package, packages, tools};

/// What a release of this version begins with.
const CHANGELOG: &str = "CHANGELOG.md";

/// Checks, builds and packs a version and the clients, and prints what is left to do: nothing is tagged, pushed or published here. With a
/// program it is a rehearsal, which packs that one.
pub(crate) fn check(words: &[&str]) -> anyhow::Result<()> {
    let (version, binary) = match *words {
        [version] => (version, None),
        [version, "--binary", file] => (version, Some(file)),
        _ => bail!("release takes VERSION and --binary FILE"),
    };
    let tag = format!("v{version}");
    let notes = section(&std::fs::read_to_string(CHANGELOG)?, version)
        .with_context(|| format!("{CHANGELOG} has no section {version}, or nothing in it"))?;
    let strays: Vec<String> = versions(Path::new("."))?
        .into_iter()
        .filter(|(_, found)| found != version)
        .map(|(place, found)| format!("{place} is {found}"))
        .collect();
    ensure!(
        strays.is_empty(),
        "not all is {version}: {}",
        strays.join(", ")
    );
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "not all is committed:\n{changed}");
    let there = git(&["tag", "--list", &tag])?;
    ensure!(there.is_empty(), "there is a tag {tag} already");
    let crates = published_crates()?;
    for name in &crates {
        run(Command::new("cargo").args(["publish", "--dry-run", "--package", name]))?;
    }
    package::run(&match binary {
        Some(binary) => package::Options::of(Path::new(binary)),
        None => package::Options::default(),
    })?;
    let folder = packages::target()?.join("package");
    let clients = packages::target()?.join("clients");
    std::fs::create_dir_all(&clients)?;
    own_clients::pack(&clients, &folder)?;
    package::dry_runs(&folder)?;
    package::sums(&folder)?;
    std::fs::write(folder.join("NOTES.md"), notes)?;
    tools::say(&what_is_left(&tag, &folder, &crates));
    Ok(())
}

fn what_is_left(tag: &str, folder: &Path, crates: &[String]) -> String {
    let folder = folder.display();
    let mut lines = vec![
        format!("git tag --annotate {tag} --file {folder}/NOTES.md"),
        format!("git push origin {tag}"),
    ];
    lines.extend(
        crates
            .iter()
            .map(|name| format!("cargo publish --package {name}")),
    );
    lines.extend([
        format!("twine upload {folder}/*.whl"),
        format!("for package in {folder}/*.tgz; do npm publish \"$package\"; done"),
        format!("skopeo copy oci-archive:{folder}/mainspring-*-oci-*.tar docker://REGISTRY/mainspring:VERSION"),
    ]);
    format!(
        "xtask: {tag} is ready. What is left, none of which was done:\n{}",
        lines.join("\n")
    )
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).output()?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// What the changelog says of a version, unless that is nothing.
fn section(changelog: &str, version: &str) -> Option<String> {
    let is_heading = |line: &&str| line.starts_with("## ");
    let of_version = |line: &str| {
        let heading = line.strip_prefix("## ").unwrap_or_default();
        heading.split_whitespace().next() == Some(version)
    };
    let lines = changelog
        .lines()
        .skip_while(|line| !of_version(line))
        .skip(1);
    let text: Vec<&str> = lines.take_while(|line| !is_heading(line)).collect();
    let text = text.join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| format!("{text}\n"))
}

/// Each place that says the version, and what it says.
fn versions(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).context(path.to_owned());
    let mut versions = Vec::new();
    let manifest: toml::Value = toml::from_str(&read("Cargo.toml")?)?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    versions.push((
        "Cargo.toml".to_owned(),
        version.unwrap_or_default().to_owned(),
    ));
    for (path, pointer) in [
        ("docs/openapi.json", "/info/version"),
        ("clients/typescript/package.json", "/version"),
        ("clients/typescript/package-lock.json", "/version"),
        ("clients/typescript/package-lock.json", "/packages//version"),
    ] {
        let document: Value = serde_json::from_str(&read(path)?)?;
        let version = document.pointer(pointer).and_then(Value::as_str);
        versions.push((
            format!("{path}{pointer}"),
            version.unwrap_or_default().to_owned(),
        ));
    }
    for (path, begins) in [
        ("clients/python/src/mainspring/types.py", "VERSION = "),
        ("helm/mainspring/Chart.yaml", "version: "),
        ("helm/mainspring/Chart.yaml", "appVersion: "),
        ("deploy/compose/compose.yaml", "  image: mainspring:"),
    ] {
        let text = read(path)?;
        let version = text.lines().find_map(|line| line.strip_prefix(begins));
        let version = version.unwrap_or_default().trim_matches('"');
        versions.push((format!("{path} ({})", begins.trim()), version.to_owned()));
    }
    Ok(versions)
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    /// The registries that it may go to; `None`: every one.
    publish: Option<Vec<String>>,
}

/// The crates of this workspace that are meant for a registry.
fn published_crates() -> anyhow::Result<Vec<String>> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version=1"])
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let meant = metadata.packages.into_iter().filter(|package| {
        package
            .publish
            .as_ref()
            .is_none_or(|registries| !registries.is_empty())
    });
    Ok(meant.map(|package| package.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_at_the_next_and_an_empty_one_is_none() {
        let changelog = "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-12-01)\n\n### API\n\n- New.\n\n## 0.1.0\n\nFirst.\n";
        assert_eq!(
            section(changelog, "0.2.0").as_deref(),
            Some("### API\n\n- New.\n")
        );
        assert_eq!(section(changelog, "0.1.0").as_deref(), Some("First.\n"));
        assert_eq!(section(changelog, "Unreleased"), None);
        assert_eq!(section(changelog, "0.2"), None);
    }

    #[test]
    fn all_packages_have_the_version_of_the_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let versions = versions(&root).expect("read");
        let of_workspace = &versions[0].1;
        assert!(!of_workspace.is_empty());
        let strays: Vec<_> = versions
            .iter()
            .filter(|(_, version)| version != of_workspace)
            .collect();
        assert!(strays.is_empty(), "{strays:?} are not {of_workspace}");
    }
}
