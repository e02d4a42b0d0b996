//! Checks which crate may depend on which: a crate is a wall around a dependency.

use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::tools;

/// External crates that only some of ours may depend on. A trailing `*` stands for a family.
const WALLS: &[(&str, &[&str])] = &[
    (
        "sqlx*",
        &[
            // Databases of others, which it only reads.
            "mainspring-importers",
            "mainspring-store-mysql",
            "mainspring-store-placed",
            "mainspring-store-postgres",
            "mainspring-store-sqlite",
            "mainspring-tests",
        ],
    ),
    ("rusqlite", &["mainspring-store-sqlite"]),
    (
        "apalis*",
        &["mainspring-queue-redis", "mainspring-queue-local"],
    ),
    (
        "redis",
        &[
            "mainspring-queue-redis",
            "mainspring-tests",
            "mainspring-benches",
        ],
    ),
    (
        "reqwest",
        &[
            "mainspring-client",
            "mainspring-runtime",
            "mainspring-blob-stores",
            "mainspring-providers",
            "mainspring-tools",
            "mainspring-cli",
            "mainspring-tests",
            "mainspring-benches",
        ],
    ),
    (
        "axum",
        &[
            "mainspring-api",
            "mainspring-cli",
            // Which hands requests to the API without a socket.
            "mainspring",
            "mainspring-tests",
            "mainspring-benches",
            // Servers that others may use without any of ours.
            "mainspring-vendors",
        ],
    ),
    ("jsonwebtoken", &["mainspring-cli"]),
    ("object_store", &["mainspring-blob-stores"]),
    ("image", &["mainspring-worker"]),
    (
        "tower*",
        &["mainspring", "mainspring-api", "mainspring-tests"],
    ),
];

/// What the shared vocabulary, rules and ports must not depend on: drivers, sockets and runtimes.
const NOT_IN_SHARED: &[&str] = &[
    "sqlx*", "redis", "tokio*", "hyper*", "reqwest", "axum", "rand", "tracing*",
];

/// Which of our crates each of our crates may depend on. `None`: all of them.
fn may_know(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "mainspring" | "mainspring-cli" | "mainspring-tests" | "mainspring-benches" => None,
        "mainspring-worker" | "mainspring-scheduler" => {
            Some(&["mainspring-shared", "mainspring-runtime"])
        }
        "mainspring-providers" => Some(&["mainspring-shared", "mainspring-worker"]),
        "mainspring-tools" => Some(&[
            "mainspring-shared",
            "mainspring-runtime",
            "mainspring-worker",
        ]),
        "mainspring-api" => Some(&[
            "mainspring-shared",
            "mainspring-runtime",
            "mainspring-scheduler",
        ]),
        "mainspring-client" | "mainspring-docs" | "mainspring-shared" | "mainspring-vendors"
        | "xtask" => Some(&[]),
        "mainspring-store-mysql" | "mainspring-store-postgres" | "mainspring-store-sqlite" => {
            Some(&["mainspring-shared", "mainspring-store-core"])
        }
        // It spans several Postgres stores.
        "mainspring-store-placed" => Some(&["mainspring-shared", "mainspring-store-postgres"]),
        // The runtime, the backends, and everything that combines them.
        _ => Some(&["mainspring-shared"]),
    }
}

/// Additional crates that any crate's tests may depend on: test doubles and the suites.
const IN_TESTS: &[&str] = &[
    "mainspring-blob-stores",
    "mainspring-runtime",
    "mainspring-store-model",
    "mainspring-queue-local",
    "mainspring-tests",
];

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`; `None` for a normal dependency.
    kind: Option<String>,
}

/// Checks every member of the workspace.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    let output = command
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let violations = violations(&metadata.packages);
    if violations.is_empty() {
        return Ok(());
    }
    for violation in &violations {
        tools::say(violation);
    }
    bail!(
        "{} of our crates know what they should not",
        violations.len()
    )
}

fn violations(packages: &[Package]) -> Vec<String> {
    let ours: Vec<&str> = packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut violations = Vec::new();
    for package in packages {
        for dependency in &package.dependencies {
            if let Some(rule) = broken(&ours, &package.name, dependency) {
                let (package, dependency) = (&package.name, &dependency.name);
                violations.push(format!("{package} must not depend on {dependency}: {rule}"));
            }
        }
    }
    violations
}

fn broken(ours: &[&str], package: &str, dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    if package == "mainspring-cli" && name == "mainspring-benches" && dependency.kind.is_none() {
        return Some("what measures is no part of what is measured".to_owned());
    }
    if ours.contains(&name) {
        let known = may_know(package)?;
        let in_tests = dependency.kind.as_deref() == Some("dev");
        if known.contains(&name) || (in_tests && IN_TESTS.contains(&name)) {
            return None;
        }
        return Some(match known {
            [] => "it knows none of ours".to_owned(),
            known => format!("of ours it knows {}", known.join(", ")),
        });
    }
    if package == "mainspring-shared" && NOT_IN_SHARED.iter().any(|family| is_in(family, name)) {
        return (dependency.kind.is_none()).then(|| "it is free of I/O and runtimes".to_owned());
    }
    let (_, allowed) = WALLS.iter().find(|(family, _)| is_in(family, name))?;
    (!allowed.contains(&package)).then(|| format!("only {} may", allowed.join(", ")))
}

fn is_in(family: &str, name: &str) -> bool {
    match family.strip_suffix('*') {
        Some(stem) => name
            .strip_prefix(stem)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-')),
        None => family == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(planted: &[(&str, &str, Option<&str>)]) -> Vec<String> {
        let names = [
            "mainspring-shared",
            "mainspring-runtime",
            "mainspring-worker",
            "mainspring-providers",
            "mainspring-tools",
            "mainspring-scheduler",
            "mainspring-api",
            "mainspring-store-postgres",
            "mainspring-queue-redis",
            "mainspring-store-model",
            "mainspring-cli",
            "mainspring-benches",
        ];
        let packages: Vec<Package> = names
            .iter()
            .map(|name| Package {
                name: (*name).to_owned(),
                dependencies: planted
                    .iter()
                    .filter(|(package, _, _)| package == name)
                    .map(|(_, dependency, kind)| Dependency {
                        name: (*dependency).to_owned(),
                        kind: kind.map(str::to_owned),
                    })
                    .collect(),
            })
            .collect();
        violations(&packages)
    }

    #[test]
    fn what_the_layout_asks_for_is_allowed() {
        let good = [
            ("mainspring-store-postgres", "sqlx", None),
            ("mainspring-store-postgres", "mainspring-shared", None),
            ("mainspring-queue-redis", "apalis-redis", None),
            ("mainspring-worker", "mainspring-runtime", None),
            ("mainspring-providers", "mainspring-worker", None),
            ("mainspring-worker", "mainspring-store-model", Some("dev")),
            ("mainspring-cli", "mainspring-store-postgres", None),
            ("mainspring-api", "axum", None),
            ("mainspring-api", "mainspring-scheduler", None),
            ("mainspring-cli", "mainspring-benches", Some("dev")),
        ];
        assert_eq!(workspace(&good), [""; 0]);
    }

    #[test]
    fn each_planted_violation_is_found() {
        let bad = [
            ("mainspring-worker", "sqlx", None),
            ("mainspring-worker", "mainspring-providers", None),
            ("mainspring-worker", "reqwest", None),
            ("mainspring-providers", "mainspring-scheduler", None),
            ("mainspring-providers", "mainspring-tools", None),
            ("mainspring-tools", "mainspring-scheduler", None),
            ("mainspring-worker", "mainspring-scheduler", None),
            ("mainspring-scheduler", "mainspring-worker", Some("dev")),
            ("mainspring-scheduler", "mainspring-store-postgres", None),
            ("mainspring-scheduler", "mainspring-store-model", None),
            ("mainspring-store-postgres", "mainspring-queue-redis", None),
            ("mainspring-cli", "mainspring-benches", None),
            ("mainspring-cli", "apalis-core", None),
            ("mainspring-cli", "sqlx-core", None),
            ("mainspring-worker", "axum", None),
            ("mainspring-scheduler", "axum", None),
            ("mainspring-scheduler", "tower", None),
            ("mainspring-scheduler", "mainspring-api", None),
            ("mainspring-api", "mainspring-worker", None),
            ("mainspring-api", "mainspring-store-postgres", None),
            ("mainspring-scheduler", "reqwest", None),
            ("mainspring-store-postgres", "redis", None),
            ("mainspring-shared", "tokio", None),
            ("mainspring-shared", "mainspring-runtime", None),
        ];
        for planted in bad {
            let found = workspace(&[planted]);
            assert_eq!(found.len(), 1, "{planted:?} gave {found:?}");
            assert!(
                found[0].contains(planted.0) && found[0].contains(planted.1),
                "{found:?}"
            );
        }
        assert_eq!(workspace(&bad).len(), bad.len());
    }

    #[test]
    fn a_family_is_its_stem_and_what_follows_a_dash() {
        assert!(is_in("sqlx*", "sqlx") && is_in("sqlx*", "sqlx-core"));
        assert!(!is_in("sqlx*", "sqlxtra") && !is_in("redis", "redis-test"));
    }
}
