//! The project's own clients, in `clients/`: what is generated is current, types hold in strict mode, packages
//! build and install, and their tests pass against the built binary.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clients;
use crate::packages::{installed, needed, npm, npm_locked, python_environment};
use crate::process::run;
use crate::rust_client;

/// Pinned, because another version finds other faults.
const PYTHON: [&str; 12] = [
    "httpx==0.28.1",
    "pytest==9.2.0",
    "pytest-xdist==3.8.0",
    "mypy==2.4.1",
    "pyright==1.1.414",
    "ruff==0.17.6",
    "hatchling==1.33.0",
    "build==1.6.1",
    "typing_extensions==4.16.0",
    // What the client works with where it is installed.
    "pydantic==2.14.4",
    "opentelemetry-api==1.45.2",
    "standardwebhooks==1.1.0",
];

const PYTHON_CLIENT: &str = "clients/python";
const TYPESCRIPT_CLIENT: &str = "clients/typescript";

/// Writes what is generated from `docs/openapi.json`.
pub(crate) fn generate() -> anyhow::Result<()> {
    python_generator(&[])?;
    rust_client::generate(false)?;
    npm_locked(TYPESCRIPT_CLIENT)?;
    npm(TYPESCRIPT_CLIENT, &["run", "--silent", "generate"])
}

/// Checks the clients with this binary: those in Python and TypeScript at the same time, while the compiler sleeps.
pub(crate) fn check(work: &Path, binary: &Path) -> anyhow::Result<()> {
    let joined = std::thread::scope(|scope| {
        let typescript = scope.spawn(|| check_typescript(binary));
        (check_python(work, binary), typescript.join())
    });
    joined.0?;
    joined.1.map_err(|_| anyhow::anyhow!("a panic"))??;
    check_rust(binary)
}

/// Its types are those that the compiler checks, and the program that plays the scenarios is an example of it.
fn check_rust(binary: &Path) -> anyhow::Result<()> {
    rust_client::generate(true)?;
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(arguments);
        command
    };
    let package = ["--package", rust_client::PACKAGE];
    run(cargo(&["test", "--quiet", "--doc"]).args(package))?;
    let server = clients::serve(binary)?;
    let mut hello = cargo(&["run", "--quiet", "--example", "hello"]);
    run(hello.args(package).env("MAINSPRING_SERVER", &server.url))?;
    drop(server);
    run(cargo(&["run", "--quiet", "--example", "scenarios"])
        .args(package)
        .arg("--")
        .arg(binary))
}

/// Builds the package of each client into a folder.
pub(crate) fn pack(work: &Path, folder: &Path) -> anyhow::Result<()> {
    run(Command::new(python_with(work)?.join("bin/python"))
        .args(["-m", "build", "--no-isolation", "--wheel", "--outdir"])
        .arg(folder)
        .current_dir(PYTHON_CLIENT))?;
    npm_locked(TYPESCRIPT_CLIENT)?;
    let folder = folder.display().to_string();
    npm(
        TYPESCRIPT_CLIENT,
        &["pack", "--silent", "--pack-destination", &folder],
    )
}

fn check_typescript(binary: &Path) -> anyhow::Result<()> {
    npm_locked(TYPESCRIPT_CLIENT)?;
    run(Command::new(needed("npm", &["nodejs", "npm"])?)
        .args(["run", "--silent", "ci"])
        .env("MAINSPRING_BIN", binary)
        .current_dir(TYPESCRIPT_CLIENT))
}

fn python_generator(arguments: &[&str]) -> anyhow::Result<()> {
    let python = needed("python3", &["python3"])?;
    let mut generator = Command::new(python);
    run(generator
        .arg(format!("{PYTHON_CLIENT}/generate.py"))
        .args(arguments))
}

/// The Python environment with everything that the checks need.
fn python_with(work: &Path) -> anyhow::Result<PathBuf> {
    installed(work, "python-client", &PYTHON, |folder| {
        python_environment(folder, &PYTHON)
    })
}

/// The checks use the package that was built, not its sources.
fn check_python(work: &Path, binary: &Path) -> anyhow::Result<()> {
    python_generator(&["--check"])?;
    let python = python_with(work)?.join("bin/python");
    let module = |module: &str, arguments: &[&str]| {
        let mut command = Command::new(&python);
        run(command
            .args(["-m", module])
            .args(arguments)
            .env("MAINSPRING_BIN", binary)
            .current_dir(PYTHON_CLIENT))
    };
    let made = tempfile::tempdir_in(work)?;
    let folder = made.path().display().to_string();
    module("build", &["--no-isolation", "--wheel", "--outdir", &folder])?;
    let wheel = std::fs::read_dir(made.path())?
        .next()
        .ok_or_else(|| anyhow::anyhow!("no wheel was built"))??
        .path();
    let wheel = wheel.display().to_string();
    let replace = ["install", "--quiet", "--force-reinstall", "--no-deps"];
    module("pip", &[&replace[..], &[&wheel]].concat())?;
    module("ruff", &["check", "--quiet"])?;
    module("mypy", &["--no-error-summary"])?;
    let interpreter = python.display().to_string();
    module("pyright", &["--pythonpath", &interpreter])?;
    // Most of the time they wait.
    module("pytest", &["--quiet", "--numprocesses=4"])?;

    // In a folder of its own, with nothing but what the package asks for.
    let empty = tempfile::tempdir_in(work)?;
    python_environment(&empty.path().join("environment"), &[&wheel])?;
    run(Command::new("environment/bin/python")
        .args(["-c", "import mainspring; mainspring.Client().close()"])
        .current_dir(empty.path()))
}
