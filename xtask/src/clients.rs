//! Clients as others generate them: made of what a server says of itself, compiled, and used.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::process::run;
use crate::server::{self, Server};
use crate::tools;

/// Made and checked with exactly these: another version finds other faults.
const PYTHON: [&str; 1] = ["openapi-python-client==0.29.1"];
const NODE: [&str; 4] = [
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "typescript@5.9.3",
    "@types/node@20",
];

/// Generates a Python and a TypeScript client of a server that was just built, and runs a program on
/// each. Fails where a generator cannot be installed.
pub(crate) fn check() -> anyhow::Result<()> {
    run(Command::new("cargo").args(["build", "--package", "mainspring-cli"]))?;
    let target = target()?;
    let work = target.join("clients");
    std::fs::create_dir_all(&work)?;
    let python = python(&work)?;
    let node = node(&work)?;
    let server = serve(&target.join("debug/mainspring"))?;
    let description = work.join("openapi.json");
    fetch(&format!("{}/openapi.json", server.url), &description)?;
    check_python(&python, &work, &description, &server.url)?;
    check_typescript(&node, &description, &server.url)
}

/// The folder that cargo builds in.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let folder = tools::variable("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned());
    Ok(std::env::current_dir()?.join(folder))
}

fn needed(program: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    if tools::program(program).is_none() {
        tools::install(packages);
    }
    tools::program(program).with_context(|| format!("{program} is missing"))
}

/// Written as the last thing into a folder that was installed as a whole.
const COMPLETE: &str = ".complete";

/// The folder with exactly these packages: of other versions it is another one, and what was left in
/// the middle is made anew.
fn installed(
    work: &Path,
    kind: &str,
    packages: &[&str],
    install: impl Fn(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let named: String = packages.join("-").chars().map(plain).collect();
    let folder = work.join(format!("{kind}-{named}"));
    let complete = folder.join(COMPLETE);
    if !complete.is_file() {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        install(&folder)?;
        std::fs::write(complete, "")?;
    }
    Ok(folder)
}

/// The folder of an environment with the generator.
fn python(work: &Path) -> anyhow::Result<PathBuf> {
    installed(work, "python", &PYTHON, |folder| {
        let python = needed("python3", &["python3", "python3-venv"])?;
        let make = || run(Command::new(&python).args(["-m", "venv"]).arg(folder));
        if make().is_err() {
            // A Debian has Python without this part of it.
            tools::install(&["python3-venv"]);
            make()?;
        }
        let install = ["-m", "pip", "install", "--quiet"];
        run(Command::new(folder.join("bin/python"))
            .args(install)
            .args(PYTHON))
    })
}

/// The folder of a project with the generator and the compiler.
fn node(work: &Path) -> anyhow::Result<PathBuf> {
    installed(work, "typescript", &NODE, |folder| {
        let npm = needed("npm", &["nodejs", "npm"])?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("package.json"), "{\"type\":\"module\"}\n")?;
        let install = ["install", "--no-audit", "--no-fund", "--silent"];
        let mut command = Command::new(npm);
        run(command.args(install).args(NODE).current_dir(folder))
    })
}

fn serve(binary: &Path) -> anyhow::Result<Server> {
    let folder = tempfile::tempdir()?;
    let port = tools::free_port()?;
    let url = format!("http://127.0.0.1:{port}");
    let mut command = server::command(None, "TERM", binary);
    command
        .args([
            "dev",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--data-dir",
        ])
        .arg(folder.path().join("data"))
        .args(["--provider", "demo"]);
    // Settings of whoever runs this are not those that the programs are written for.
    for name in tools::settings() {
        command.env_remove(name);
    }
    let is_up = {
        let url = format!("{url}/readyz");
        move || fetch(&url, Path::new("/dev/null")).is_ok()
    };
    Server::start("mainspring", url, folder, "-TERM", command, is_up)
}

/// Reads what is at an address of this machine into a file.
fn fetch(url: &str, file: &Path) -> anyhow::Result<()> {
    use std::io::{Read, Write};

    let rest = url.strip_prefix("http://").context("an address")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    let mut stream = std::net::TcpStream::connect(host)?;
    write!(stream, "GET /{path} HTTP/1.0\r\nhost: {host}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.context("a head")?;
    if !answer.starts_with(b"HTTP/1.0 200") && !answer.starts_with(b"HTTP/1.1 200") {
        bail!("{url}: {}", String::from_utf8_lossy(&answer[..end]));
    }
    std::fs::write(file, &answer[end + 4..])?;
    Ok(())
}

fn check_python(
    python: &Path,
    work: &Path,
    description: &Path,
    server: &str,
) -> anyhow::Result<()> {
    let made = work.join("mainspring_client");
    let config = work.join("python.yaml");
    // Nothing is tidied up, which takes further programs; archives are bytes to it.
    let settings = "package_name_override: mainspring_client\n\
        project_name_override: mainspring_client\n\
        post_hooks: []\n\
        content_type_overrides:\n  application/x-ndjson: application/octet-stream\n";
    std::fs::write(&config, settings)?;
    let mut generator = Command::new(python.join("bin/openapi-python-client"));
    generator.args([
        "generate",
        "--meta",
        "none",
        "--overwrite",
        "--fail-on-warning",
    ]);
    generator.arg("--path").arg(description);
    generator.arg("--config").arg(&config);
    run(generator.arg("--output-path").arg(&made))?;
    let mut program = Command::new(python.join("bin/python"));
    program.env("PYTHONPATH", work);
    run(program.args(["tests/clients/use.py", server]))
}

fn check_typescript(node: &Path, description: &Path, server: &str) -> anyhow::Result<()> {
    let bin = node.join("node_modules/.bin");
    let mut generator = Command::new(bin.join("openapi-typescript"));
    run(generator
        .arg(description)
        .arg("-o")
        .arg(node.join("schema.d.ts")))?;
    std::fs::copy("tests/clients/use.ts", node.join("use.ts"))?;
    let mut compiler = Command::new(bin.join("tsc"));
    compiler.current_dir(node).args([
        "--strict",
        "--noUncheckedIndexedAccess",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
        "--skipLibCheck",
        "use.ts",
    ]);
    run(&mut compiler)?;
    run(Command::new("node")
        .current_dir(node)
        .args(["use.js", server]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_installed_is_kept_until_it_is_something_else_and_what_was_begun_is_not() {
        let work = tempfile::tempdir().expect("a folder");
        let install = |folder: &Path| {
            anyhow::ensure!(!folder.exists(), "nothing is left there");
            std::fs::create_dir_all(folder)?;
            std::fs::write(folder.join("half"), "")?;
            Ok(())
        };
        let breaks = |folder: &Path| {
            install(folder)?;
            bail!("interrupted")
        };
        let keeps = |_: &Path| bail!("it is there already");
        let packages = ["@types/node@20", "made==1.0"];
        installed(work.path(), "some", &packages, breaks).expect_err("it is not finished");
        let made = installed(work.path(), "some", &packages, install).expect("made anew");
        assert!(made.join("half").is_file());
        assert_eq!(made.parent(), Some(work.path()));
        let same = installed(work.path(), "some", &packages, keeps).expect("kept");
        assert_eq!(same, made);
        let other = installed(work.path(), "some", &["made==1.1"], install).expect("made");
        assert_ne!(other, made);
    }
}
