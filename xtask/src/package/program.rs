//! The program that is packed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};

use super::elf::{self, Needs, Processor};
use crate::process::run;
use crate::{packages, tools};

/// Linked statically, it runs on every Linux, and alone in an image. Its allocator is not musl's.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Compiles C for it: SQLite, the allocator and the primitives of TLS are C.
const COMPILER: &str = "musl-gcc";

/// A program without symbols.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) file: PathBuf,
    pub(super) bytes: Arc<[u8]>,
    pub(super) needs: Needs,
    pub(super) processor: Processor,
}

impl Program {
    fn read(file: PathBuf) -> anyhow::Result<Self> {
        let bytes = std::fs::read(&file).with_context(|| file.display().to_string())?;
        Ok(Self {
            needs: elf::needs(&bytes)?,
            processor: elf::processor(&bytes)?,
            bytes: bytes.into(),
            file,
        })
    }
}

/// Takes a program that was built already.
pub(super) fn given(binary: &Path) -> anyhow::Result<Program> {
    let file = super::scratch()?.join("mainspring");
    let strip = packages::needed("strip", &["binutils"])?;
    run(Command::new(strip).arg("-o").arg(&file).arg(binary))?;
    Program::read(file)
}

/// Builds the program that is published. The paths of this machine are not in it, so that another one builds the same.
pub(super) fn built() -> anyhow::Result<Program> {
    packages::needed(COMPILER, &["musl-tools"])?;
    let installed = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()?;
    let folder = String::from_utf8(installed.stdout)?;
    if !Path::new(folder.trim()).is_dir() {
        run(Command::new("rustup").args(["target", "add", TARGET]))?;
    }
    let here = std::env::current_dir()?;
    let home = tools::variable("CARGO_HOME").map_or_else(
        || PathBuf::from(tools::variable("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    let paths = [(here.as_path(), "/mainspring"), (home.as_path(), "/cargo")];
    let target = packages::target()?;
    let rust: Vec<String> = paths
        .iter()
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .collect();
    let c: Vec<String> = paths
        .iter()
        .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
        .collect();
    run(Command::new("cargo")
        .args([
            "build",
            "--locked",
            "--package=mainspring-cli",
            "--profile=dist",
        ])
        .args(["--target", TARGET])
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"))
        .env("CFLAGS_x86_64_unknown_linux_musl", c.join(" ")))?;
    let program = Program::read(target.join(TARGET).join("dist/mainspring"))?;
    for (path, _) in paths {
        let path = path.display().to_string();
        let is_in = program
            .bytes
            .windows(path.len())
            .any(|window| window == path.as_bytes());
        ensure!(!is_in, "the program says where it was built: {path}");
    }
    Ok(program)
}
