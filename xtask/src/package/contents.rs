//! What packages are made of: the program, what it says about itself, and documents.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::program::Program;
use super::sbom;
use super::tree::Tree;
use crate::tools;

/// What a person who installs it reads.
const DOCUMENTS: [&str; 3] = ["README.md", "CHANGELOG.md", "LICENSE"];

/// The shells, with the place of each one's script below a prefix.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/mainspring"),
    ("fish", "share/fish/vendor_completions.d/mainspring.fish"),
    ("zsh", "share/zsh/site-functions/_mainspring"),
];

/// Everything that is packed.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) program: Program,
    pub(super) version: String,
    /// The commit that it is built from.
    pub(super) revision: String,
    /// Seconds of the epoch: when that was made. All files have this time.
    pub(super) epoch: u64,
    /// The same as RFC 3339 has it.
    pub(super) created: String,
    /// The name and the text of each man page.
    pub(super) pages: Vec<(String, Vec<u8>)>,
    /// The place and the text of each shell's completions.
    completions: Vec<(&'static str, Vec<u8>)>,
    /// What is in the program, as CycloneDX.
    pub(super) sbom: Vec<u8>,
}

impl Contents {
    /// Those of a program that does nothing.
    #[cfg(test)]
    pub(super) fn sample() -> Self {
        let program = Program {
            file: "/nowhere".into(),
            bytes: (*b"a program").into(),
            needs: super::elf::Needs::Nothing,
            processor: super::elf::X86_64,
        };
        Self {
            program,
            version: "1.2.3".to_owned(),
            revision: "0123abc".to_owned(),
            epoch: 1_234_567_890,
            created: "2009-02-13T23:31:30Z".to_owned(),
            pages: vec![("mainspring.1".to_owned(), b"a page".to_vec())],
            completions: SHELLS
                .iter()
                .map(|(shell, place)| (*place, shell.as_bytes().to_vec()))
                .collect(),
            sbom: b"{}".to_vec(),
        }
    }

    /// Reads all of it; the program writes its own man pages and completions.
    pub(super) fn read(program: Program) -> anyhow::Result<Self> {
        let version = said(Command::new(&program.file).arg("--version"))?;
        let version = version.trim().trim_start_matches("mainspring ").to_owned();
        let epoch = match tools::variable("SOURCE_DATE_EPOCH") {
            Some(epoch) => epoch,
            None => said(Command::new("git").args(["log", "-1", "--format=%ct"]))?,
        };
        let epoch = epoch.trim().parse().context("SOURCE_DATE_EPOCH")?;
        let created = date(epoch, "+%Y-%m-%dT%H:%M:%SZ")?;
        let revision = said(Command::new("git").args(["rev-parse", "HEAD"]))?;
        let mut completions = Vec::new();
        for (shell, place) in SHELLS {
            let script = said(Command::new(&program.file).args(["completions", shell]))?;
            completions.push((place, script.into_bytes()));
        }
        Ok(Self {
            sbom: sbom::make(&program.processor, &created)?,
            pages: pages(&program.file)?,
            program,
            version,
            revision: revision.trim().to_owned(),
            epoch,
            created,
            completions,
        })
    }

    /// The program, its man pages and its completions, below a prefix such as `/usr`.
    pub(super) fn installed(&self) -> Tree {
        let mut tree = Tree::default();
        tree.program("bin/mainspring", self.program.bytes.clone());
        for (name, page) in &self.pages {
            tree.file(format!("share/man/man1/{name}"), page.as_slice());
        }
        for (place, script) in &self.completions {
            tree.file(*place, script.as_slice());
        }
        tree
    }

    /// The folder of the archive, to be unpacked anywhere or over a prefix.
    pub(super) fn archive(&self) -> anyhow::Result<Tree> {
        let mut tree = self.installed();
        for name in DOCUMENTS {
            tree.file(format!("share/doc/mainspring/{name}"), document(name)?);
        }
        tree.file(
            "share/doc/mainspring/mainspring.cdx.json",
            self.sbom.as_slice(),
        );
        Ok(tree.below(&self.archive_name()))
    }

    /// The name of that folder.
    pub(super) fn archive_name(&self) -> String {
        let processor = self.program.processor.name;
        format!("mainspring-{}-linux-{processor}", self.version)
    }
}

/// A second of the epoch in UTC, in the words of `date`.
pub(super) fn date(epoch: u64, format: &str) -> anyhow::Result<String> {
    let at = format!("@{epoch}");
    let text = said(
        Command::new("date")
            .args(["-u", "-d", &at, format])
            .env("LC_ALL", "C"),
    )?;
    Ok(text.trim().to_owned())
}

/// A text of the sources, or any file.
pub(super) fn document(path: &str) -> anyhow::Result<Vec<u8>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read(sources.join(path)).with_context(|| path.to_owned())
}

fn pages(program: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let folder = tempfile::tempdir()?;
    said(Command::new(program).arg("man").arg(folder.path()))?;
    let mut pages = Vec::new();
    for page in std::fs::read_dir(folder.path())? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        pages.push((name, std::fs::read(page.path())?));
    }
    pages.sort();
    ensure!(!pages.is_empty(), "the program has no man pages");
    Ok(pages)
}

/// What a program prints.
pub(super) fn said(command: &mut Command) -> anyhow::Result<String> {
    // What the user of this has set is not what the program says.
    for name in tools::settings() {
        command.env_remove(name);
    }
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
