//! Checks that the workspace works on the oldest Rust, which `rust-version` names.
//!
//! Clippy's `incompatible_msrv` finds items of the standard library that are newer, in tests too
//! (`clippy.toml`). This covers the rest: dependencies, and the language.

use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::{packages, process, tools};

const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    rust_version: Option<String>,
}

/// Fails if a dependency requires a newer Rust, or if the workspace does not compile on the oldest
/// one.
pub(crate) fn check() -> anyhow::Result<()> {
    let metadata = output(Command::new("cargo").args(["metadata", "--format-version", "1"]))?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
    let oldest = minor(OLDEST).context("rust-version")?;
    let newer = newer(&metadata.packages, oldest);
    if !newer.is_empty() {
        bail!("newer than Rust {OLDEST}: {}", newer.join(", "));
    }
    let current = output(Command::new("rustc").arg("--version"))?;
    if current.split(' ').nth(1).and_then(minor) == Some(oldest) {
        tools::say(&format!(
            "xtask: Rust {OLDEST} is the oldest and the one in use: whatever compiles proves it"
        ));
        return Ok(());
    }
    let install = ["toolchain", "install", OLDEST, "--profile", "minimal"];
    if let Err(error) = process::run(Command::new("rustup").args(install)) {
        tools::say(&format!(
            "xtask: SKIPPED compiling on Rust {OLDEST}: {error:#}"
        ));
        return Ok(());
    }
    let check = ["check", "--workspace", "--all-targets", "--locked"];
    process::run(
        Command::new("rustup")
            .args(["run", OLDEST, "cargo"])
            .args(check)
            // In the same folder, each of the two compilers would rebuild what the other one built.
            .arg("--target-dir")
            .arg(packages::target()?.join("msrv")),
    )
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The major and minor numbers of `1.95`, `1.95.0` or `1.95.0-nightly`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim().split('.');
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next().map_or(Ok(0), str::parse).ok()?))
}

fn newer(packages: &[Package], oldest: (u32, u32)) -> Vec<String> {
    let asks = |package: &&Package| {
        let version = package.rust_version.as_deref();
        version.and_then(minor) > Some(oldest)
    };
    let show = |package: &Package| {
        let wanted = package.rust_version.as_deref().unwrap_or_default();
        format!("{} {} wants {wanted}", package.name, package.version)
    };
    packages.iter().filter(asks).map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asks_for_a_newer_rust_is_found() {
        let package = |name: &str, version: Option<&str>| Package {
            name: name.to_owned(),
            version: "2.0.0".to_owned(),
            rust_version: version.map(str::to_owned),
        };
        let packages = [
            package("silent", None),
            package("older", Some("1.9")),
            package("same", Some("1.95.0")),
            package("newer", Some("1.96")),
            package("much-newer", Some("2")),
        ];
        assert_eq!(
            newer(&packages, (1, 95)),
            ["newer 2.0.0 wants 1.96", "much-newer 2.0.0 wants 2"]
        );
    }

    #[test]
    fn versions_are_read_as_tools_print_them() {
        assert_eq!(minor("1.95"), Some((1, 95)));
        assert_eq!(minor("1.97.0-nightly"), Some((1, 97)));
        assert_eq!(minor("newest"), None);
        assert!(minor(OLDEST).is_some());
    }
}
