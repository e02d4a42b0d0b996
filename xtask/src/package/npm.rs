//! An npm package that carries the program: `npx` runs it as it is, without a script between.
//!
//! The name `mainspring` is another package's there, so that this one has a scope.

use serde_json::json;

use super::contents::{Contents, document};
use super::tree::{self, Effort, Tree};

/// The scope has to be registered before the first release.
const NAME: &str = "@mainspring/server";

pub(super) fn make(contents: &Contents, effort: Effort) -> anyhow::Result<(String, Vec<u8>)> {
    let version = &contents.version;
    let mut tree = Tree::default();
    tree.file(
        "package.json",
        manifest(version, contents.program.processor.node),
    );
    tree.file("README.md", document("deploy/packages/npm.md")?);
    tree.file("LICENSE", document("LICENSE")?);
    tree.file("mainspring.cdx.json", contents.sbom.as_slice());
    tree.program("bin/mainspring", contents.program.bytes.clone());
    let tar = tree.below("package").tar(contents.epoch)?;
    // As `npm pack` names it.
    let name = format!("mainspring-server-{version}.tgz");
    Ok((name, tree::gzip(&tar, effort)?))
}

fn manifest(version: &str, processor: &str) -> Vec<u8> {
    let manifest = json!({
        "name": NAME,
        "version": version,
        "description": "The program of Mainspring: LLM agents as durable, distributed work",
        "license": "MIT",
        "os": ["linux"],
        "cpu": [processor],
        "bin": { "mainspring": "bin/mainspring" },
        "files": ["bin", "mainspring.cdx.json"],
        "publishConfig": { "access": "public" },
    });
    format!("{manifest:#}\n").into_bytes()
}
