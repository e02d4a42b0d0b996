//! Installs each package as its users do, and starts what was installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::contents::{Contents, said};
use super::elf::Needs;
use super::trial::{Times, arguments, serve};
use super::{Packages, image};
use crate::packages::{installed, needed, python_environment, target};
use crate::process::run;
use crate::tools;

/// What registries and readers of the list check, pinned because another version finds other faults.
const PYTHON: [&str; 2] = [
    "twine==7.0.0",
    "cyclonedx-python-lib[json-validation]==11.12.0",
];

/// The most that what is published takes from a command to a ready server, and with its installation to an answer.
const READY_MAX: Duration = Duration::from_secs(3);
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The same for a container.
const CONTAINER_READY_MAX: Duration = Duration::from_millis(500);

/// Tries every package in this folder.
pub(super) fn run_all(contents: &Contents, made: &Packages, folder: &Path) -> anyhow::Result<()> {
    let trials: [Trial<'_>; 5] = [
        ("archive", &|| {
            archive(contents, &folder.join(&made.archive.0))
        }),
        ("Debian package", &|| deb(&folder.join(&made.deb.0))),
        ("wheel", &|| {
            wheel(&folder.join(&made.wheel.0), &folder.join(&made.sbom.0))
        }),
        ("npm package", &|| npm(&folder.join(&made.npm.0))),
        ("image", &|| {
            container(contents, &folder.join(&made.image.name))
        }),
    ];
    dry_runs(folder)?;
    for (name, trial) in trials {
        let tried = trial().with_context(|| name.to_owned())?;
        tools::say(&format!("xtask: {name}: {}", tried.shown()));
        if contents.program.needs == Needs::Nothing {
            tried.is_quick().with_context(|| name.to_owned())?;
        }
    }
    Ok(())
}

/// Asks what the registries of Python and Node ask of every wheel and npm package in a folder. Nothing is published.
pub(crate) fn dry_runs(folder: &Path) -> anyhow::Result<()> {
    for file in fs::read_dir(folder)? {
        let file = file?.path();
        let extension = file.extension().unwrap_or_default();
        if extension == "whl" {
            let mut twine = Command::new(python()?);
            run(twine.args(["-m", "twine", "check", "--strict"]).arg(&file))?;
        } else if extension == "tgz" {
            let mut npm = Command::new(needed("npm", &["nodejs", "npm"])?);
            run(npm.args(["publish", "--dry-run", "--silent"]).arg(&file))?;
        }
    }
    Ok(())
}

/// A Python that has what checks wheels and lists.
fn python() -> anyhow::Result<PathBuf> {
    let folder = installed(&target()?.join("tools"), "wheel", &PYTHON, |folder| {
        python_environment(folder, &PYTHON)
    })?;
    Ok(folder.join("bin/python"))
}

type Trial<'a> = (&'a str, &'a dyn Fn() -> anyhow::Result<Tried>);

/// How long it took.
struct Tried {
    installed: Duration,
    served: Times,
    ready_max: Duration,
}

impl Tried {
    fn shown(&self) -> String {
        let ms = |time: Duration| time.as_millis();
        format!(
            "installed in {} ms, ready {} ms and answered {} ms after its start",
            ms(self.installed),
            ms(self.served.ready),
            ms(self.served.answer)
        )
    }

    fn is_quick(&self) -> anyhow::Result<()> {
        ensure!(
            self.served.ready <= self.ready_max,
            "ready in more than {:?}",
            self.ready_max
        );
        let answered = self.installed + self.served.answer;
        ensure!(
            answered <= ANSWER_MAX,
            "answered in more than {ANSWER_MAX:?}"
        );
        Ok(())
    }
}

fn tried(install: impl FnOnce() -> anyhow::Result<PathBuf>) -> anyhow::Result<Tried> {
    let (installed, program) = timed(install)?;
    served(installed, Command::new(program))
}

/// Serves with a program that took so long to install.
fn served(installed: Duration, mut program: Command) -> anyhow::Result<Tried> {
    let (data, port) = (tempfile::tempdir()?, tools::free_port()?);
    program.args(arguments(port, data.path()));
    Ok(Tried {
        installed,
        served: serve(program, port, || Ok(()))?,
        ready_max: READY_MAX,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "chores take the time that they take"
)]
fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(Duration, T)> {
    let begin = Instant::now();
    let result = work()?;
    Ok((begin.elapsed(), result))
}

fn scratch() -> anyhow::Result<TempDir> {
    Ok(tempfile::tempdir_in(super::scratch()?)?)
}

fn archive(contents: &Contents, file: &Path) -> anyhow::Result<Tried> {
    let folder = scratch()?;
    let unpacked = folder.path().join(contents.archive_name());
    let tried = tried(|| {
        run(Command::new("tar")
            .arg("-C")
            .arg(folder.path())
            .arg("-xzf")
            .arg(file))?;
        Ok(unpacked.join("bin/mainspring"))
    })?;
    let share = unpacked.join("share");
    for (shell, check, place) in [
        ("bash", "-n", "bash-completion/completions/mainspring"),
        (
            "fish",
            "--no-execute",
            "fish/vendor_completions.d/mainspring.fish",
        ),
        ("zsh", "-n", "zsh/site-functions/_mainspring"),
    ] {
        let script = share.join(place);
        ensure!(script.is_file(), "there is no {place}");
        if let Some(shell) = tools::program(shell) {
            run(Command::new(shell).arg(check).arg(script))?;
        }
    }
    Ok(tried)
}

/// Installs it below a folder with a database of its own, changes the configuration, installs it again, and removes it.
fn deb(file: &Path) -> anyhow::Result<Tried> {
    let root = scratch()?;
    let database = root.path().join("var/lib/dpkg");
    fs::create_dir_all(database.join("updates"))?;
    fs::create_dir_all(database.join("info"))?;
    fs::write(database.join("status"), "")?;
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", root.path().display()))
            // There is no other package, and no shell for scripts.
            .args([
                "--force-depends",
                "--force-script-chrootless",
                "--force-confold",
                "--force-not-root",
            ])
            .args(arguments);
        command
    };
    let name = file.display().to_string();
    let tried = tried(|| {
        run(&mut dpkg(&["--install", &name]))?;
        Ok(root.path().join("usr/bin/mainspring"))
    })?;
    let intact = said(&mut dpkg(&["--verify", "mainspring"]))?;
    ensure!(intact.is_empty(), "files are not as packed: {intact}");
    let configuration = root.path().join("etc/mainspring/mainspring.toml");
    fs::write(&configuration, "# changed\n")?;
    run(&mut dpkg(&["--install", &name]))?;
    let kept = fs::read_to_string(&configuration)?;
    ensure!(
        kept == "# changed\n",
        "an upgrade changes the configuration"
    );
    run(&mut dpkg(&["--remove", "mainspring"]))?;
    ensure!(
        configuration.exists(),
        "a removal removes the configuration"
    );
    ensure!(
        !root.path().join("usr/bin/mainspring").exists(),
        "the program is still there"
    );
    run(&mut dpkg(&["--purge", "mainspring"]))?;
    ensure!(!configuration.exists(), "a purge keeps the configuration");
    if let Some(lintian) = tools::program("lintian") {
        run(Command::new(lintian)
            .args(["--fail-on=error,warning", "--allow-root"])
            .arg(file))?;
    }
    Ok(tried)
}

fn wheel(file: &Path, sbom: &Path) -> anyhow::Result<Tried> {
    let tools = target()?.join("tools");
    let checks = installed(&tools, "wheel", &PYTHON, |folder| {
        python_environment(folder, &PYTHON)
    })?;
    let python = checks.join("bin/python");
    run(Command::new(&python)
        .args(["-m", "twine", "check", "--strict"])
        .arg(file))?;
    run(Command::new(&python)
        .arg("tests/packages/sbom.py")
        .arg(sbom))?;
    let folder = scratch()?;
    let python = needed("python3", &["python3", "python3-venv"])?;
    run(Command::new(python).args(["-m", "venv"]).arg(folder.path()))?;
    tried(|| {
        let mut pip = Command::new(folder.path().join("bin/pip"));
        run(pip.args(["install", "--quiet", "--no-index"]).arg(file))?;
        Ok(folder.path().join("bin/mainspring"))
    })
}

/// Installs it into an empty project without an index, and runs it from there.
fn npm(file: &Path) -> anyhow::Result<Tried> {
    let npm = needed("npm", &["nodejs", "npm"])?;
    let folder = scratch()?;
    fs::write(folder.path().join("package.json"), "{}")?;
    let npm = || {
        let mut command = Command::new(&npm);
        command.current_dir(folder.path());
        command.env("npm_config_cache", folder.path().join("cache"));
        command.env("npm_config_update_notifier", "false");
        command
    };
    let (installed, ()) =
        timed(|| run(npm().args(["install", "--offline", "--silent"]).arg(file)))?;
    let mut npx = npm();
    npx.args(["exec", "--offline", "--", "mainspring"]);
    served(installed, npx)
}

/// Runs the rest of its line without the second hierarchy of cgroups, which only this process then lacks: crun refuses a
/// machine that has both.
const WITH_ONE_HIERARCHY: &str = r#"umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@""#;

/// Unpacks the image and runs it as its own user on a root that cannot be written to, in namespaces of its own but for the
/// network's, and without cgroups.
fn container(contents: &Contents, file: &Path) -> anyhow::Result<Tried> {
    let umoci = needed("umoci", &["umoci"])?;
    let crun = needed("crun", &["crun"])?;
    let folder = scratch()?;
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("layout"))?;
    let port = tools::free_port()?;
    let (installed, ()) = timed(|| {
        run(Command::new("tar")
            .arg("-C")
            .arg(path("layout"))
            .arg("-xf")
            .arg(file))?;
        let image = format!("{}:{}", path("layout").display(), contents.version);
        run(Command::new(umoci)
            .args(["unpack", "--image", &image])
            .arg(path("bundle")))
    })?;
    let config = path("bundle/config.json");
    let settings = serde_json::from_slice(&fs::read(&config)?)?;
    fs::write(&config, to_run(settings, port)?.to_string())?;
    let name = format!("mainspring-{port}");
    let runtime = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", WITH_ONE_HIERARCHY, "sh"])
            .arg(&crun);
        command.arg(format!("--root={}", path("state").display()));
        command.arg("--cgroup-manager=disabled").args(words);
        command
    };
    let bundle = path("bundle").display().to_string();
    let served = serve(runtime(&["run", "--bundle", &bundle, &name]), port, || {
        let state: Value = serde_json::from_str(&said(&mut runtime(&["state", &name]))?)?;
        let status = fs::read_to_string(format!("/proc/{}/status", state["pid"]))?;
        let user = status
            .lines()
            .find(|line| line.starts_with("Uid:"))
            .unwrap_or_default();
        let is_user = user
            .split_whitespace()
            .skip(1)
            .all(|id| id == image::USER.to_string());
        ensure!(is_user, "it runs as another user: {user}");
        Ok(())
    })?;
    Ok(Tried {
        installed,
        served,
        ready_max: CONTAINER_READY_MAX,
    })
}

/// The settings of a container that serves this port of the machine.
fn to_run(mut settings: Value, port: u16) -> anyhow::Result<Value> {
    ensure!(
        settings["process"]["args"][0] == image::PROGRAM,
        "{}",
        settings["process"]
    );
    let mut words = vec![image::PROGRAM.to_owned()];
    words.extend(arguments(port, Path::new("/tmp/data")));
    settings["process"]["args"] = json!(words);
    settings["process"]["terminal"] = json!(false);
    settings["root"]["readonly"] = json!(true);
    let linux = settings["linux"]
        .as_object_mut()
        .context("what Linux does")?;
    linux.remove("resources");
    let namespaces = linux["namespaces"].as_array_mut().context("namespaces")?;
    namespaces.retain(|namespace| namespace["type"] != "network");
    let mounts = settings["mounts"].as_array_mut().context("mounts")?;
    mounts.retain(|mount| mount["type"] != "cgroup");
    mounts.push(json!({
        "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"],
    }));
    Ok(settings)
}
