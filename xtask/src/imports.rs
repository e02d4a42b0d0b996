//! Imports from other systems: databases that these made themselves, imported by the built binary, and compared with
//! what they hold.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::packages::{binary, installed, python_environment, target};
use crate::process::run;
use crate::{clients, postgres, tools};

/// Pinned, because another version finds other faults. The library's drivers are in the same environment.
const PYTHON: [&str; 5] = [
    "langgraph==1.2.24",
    "langgraph-checkpoint-postgres==3.2.0",
    "langgraph-checkpoint-sqlite==3.1.2",
    "psycopg[binary]==3.3.9",
    "asyncpg==0.32.0",
];

/// The versions of power-loop: the first of its first layout, the last of one in between, and the newest. With the
/// prefix of its tables in Postgres, where it has that.
const POWER_LOOP: [(&str, Option<&str>); 3] = [
    ("1.0.0", None),
    ("3.24.0", Some("old_")),
    ("8.0.0", Some("pl_")),
];

const PROGRAMS: &str = "tests/clients/import";

struct Imports<'a> {
    binary: &'a Path,
    server: &'a str,
    python: PathBuf,
    folder: &'a Path,
}

/// All sources, on a server of its own.
pub(crate) fn whole() -> anyhow::Result<()> {
    let binary = binary()?;
    let work = target()?.join("clients");
    std::fs::create_dir_all(&work)?;
    let python = installed(&work, "import-python", &PYTHON, |folder| {
        python_environment(folder, &PYTHON)
    })?;
    if postgres::find().is_none() {
        tools::install(&["postgresql"]);
    }
    let programs = postgres::find().context("Postgres is missing")?;
    let database = postgres::start(&programs)?;
    let server = clients::serve(&binary)?;
    let folder = tempfile::tempdir_in(&work)?;
    let imports = Imports {
        binary: &binary,
        server: &server.url,
        python: python.join("bin/python"),
        folder: folder.path(),
    };
    for (version, prefix) in POWER_LOOP {
        let library = power_loop(&work, &imports.python, version)?;
        imports.power_loop(&library, &imports.file(&format!("{version}.db")), None)?;
        if let Some(prefix) = prefix {
            imports.power_loop(&library, &database.url, Some(prefix))?;
        }
    }
    imports.langgraph(&imports.file("langgraph.db"))?;
    imports.langgraph(&database.url)?;
    imports.openai()
}

/// The sources that need neither a database server nor many packages: the newest library's file, and an export.
pub(crate) fn check(
    work: &Path,
    python: PathBuf,
    binary: &Path,
    server: &str,
) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(work)?;
    let imports = Imports {
        binary,
        server,
        python,
        folder: folder.path(),
    };
    let [.., (newest, _)] = POWER_LOOP;
    let library = power_loop(work, &imports.python, newest)?;
    imports.power_loop(&library, &imports.file("newest.db"), None)?;
    imports.openai()
}

/// The folder with a version of the library, which has no dependencies.
fn power_loop(work: &Path, python: &Path, version: &str) -> anyhow::Result<PathBuf> {
    let package = format!("power-loop=={version}");
    installed(work, "power-loop", &[&package], |folder| {
        run(Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(folder)
            .arg(&package))
    })
}

impl Imports<'_> {
    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn program(&self, name: &str) -> Command {
        let mut program = Command::new(&self.python);
        program.arg(Path::new(PROGRAMS).join(name));
        program
    }

    fn power_loop(
        &self,
        library: &Path,
        address: &str,
        prefix: Option<&str>,
    ) -> anyhow::Result<()> {
        let expected = self.file("expected.json");
        let mut made = self.program("make_power_loop.py");
        made.env("PYTHONPATH", library).args([address, &expected]);
        run(made.args(prefix))?;
        let mut arguments = vec!["power-loop", address];
        if let Some(prefix) = prefix {
            arguments.extend(["--prefix", prefix]);
        }
        self.import(&arguments, &expected)
    }

    fn langgraph(&self, address: &str) -> anyhow::Result<()> {
        let expected = self.file("expected.json");
        run(self.program("make_langgraph.py").args([address, &expected]))?;
        self.import(&["langgraph", address], &expected)
    }

    fn openai(&self) -> anyhow::Result<()> {
        let (file, expected) = (self.file("openai.jsonl"), self.file("expected.json"));
        let mut made = self.program("make_openai.py");
        run(made.args([self.server, &file, &expected]))?;
        self.import(&["openai", &file], &expected)
    }

    /// Imports a source, and once more, which changes nothing; then compares what is there.
    fn import(&self, arguments: &[&str], expected: &str) -> anyhow::Result<()> {
        let dry = [arguments, &["--dry-run"]].concat();
        let counted = self.counts(&dry)?;
        let first = self.counts(arguments)?;
        if first != counted {
            bail!("{arguments:?} creates {first}, and was to create {counted}");
        }
        let again = self.counts(arguments)?;
        if again != 0 || first == 0 {
            bail!("{arguments:?} creates {first}, and then {again}");
        }
        let system = arguments.first().copied().unwrap_or_default();
        run(self
            .program("compare.py")
            .args([self.server, system, expected]))
    }

    /// How much a run of the command says that it has created.
    fn counts(&self, arguments: &[&str]) -> anyhow::Result<u64> {
        let mut command = Command::new(self.binary);
        for name in tools::settings() {
            command.env_remove(name);
        }
        command.args(["--server", self.server, "-o", "json", "import"]);
        let output = command.args(arguments).output()?;
        if !output.status.success() {
            bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)?;
        Ok(rows.iter().filter_map(|row| row["created"].as_u64()).sum())
    }
}
