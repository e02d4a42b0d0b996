//! The console's page: built from `console/` into the files that the program has in it, and used in a browser.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::packages::{binary, needed, npm, npm_locked, target};
use crate::process::run;
use crate::tools;

/// The sources.
const SOURCES: &str = "console";

/// What is built from them.
const BUILT: &str = "scheduler/api/console";

/// The files that the program has in it, and no others.
const FILES: [&str; 3] = ["app.css", "app.js", "index.html"];

/// Maximum bytes of the files together, as they are sent: the page opens within a second over a slow line.
const BYTES_MAX: usize = 110_000;

/// What is checked with which program.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    binary: Option<&'a Path>,
}

impl<'a> Options<'a> {
    /// Reads `--check [--binary FILE]`.
    pub(crate) fn parse(words: &[&'a str]) -> anyhow::Result<Self> {
        match *words {
            ["--check"] => Ok(Self { binary: None }),
            ["--check", "--binary", file] => Ok(Self {
                binary: Some(file.as_ref()),
            }),
            _ => bail!("console takes --check, and with it --binary FILE, not {words:?}"),
        }
    }
}

/// Builds the page.
pub(crate) fn build() -> anyhow::Result<()> {
    npm_locked(SOURCES)?;
    npm(SOURCES, &["run", "--silent", "build"])?;
    measure(Path::new(BUILT))
}

/// Checks that what is committed is what the sources make, and small; then uses the page in a browser.
pub(crate) fn check(options: &Options<'_>) -> anyhow::Result<()> {
    let binary = match options.binary {
        Some(binary) => binary
            .canonicalize()
            .with_context(|| binary.display().to_string())?,
        None => binary()?,
    };
    npm_locked(SOURCES)?;
    let work = target()?;
    std::fs::create_dir_all(&work)?;
    let made = tempfile::tempdir_in(work)?;
    let folder = made.path().display().to_string();
    let options = ["--outDir", &folder, "--emptyOutDir"];
    npm(
        SOURCES,
        &[&["run", "--silent", "build", "--"], &options[..]].concat(),
    )?;
    compare(made.path(), Path::new(BUILT))?;
    measure(Path::new(BUILT))?;
    run(Command::new(needed("npm", &["nodejs", "npm"])?)
        .args(["run", "--silent", "test"])
        .env("MAINSPRING_BIN", binary)
        .env("CHROMIUM", browser()?)
        .current_dir(SOURCES))
}

/// The browser: Debian's, so that nothing else is downloaded.
fn browser() -> anyhow::Result<PathBuf> {
    needed("chromium", &["chromium"])
}

/// Fails unless both folders have the files of the page, the same in each, and no others.
fn compare(made: &Path, committed: &Path) -> anyhow::Result<()> {
    for folder in [made, committed] {
        let entries = std::fs::read_dir(folder)
            .with_context(|| folder.display().to_string())?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<anyhow::Result<BTreeSet<_>>>()?;
        ensure!(
            entries.iter().eq(FILES),
            "{} has {entries:?} instead of {FILES:?}",
            folder.display()
        );
    }
    for file in FILES {
        ensure!(
            std::fs::read(made.join(file))? == std::fs::read(committed.join(file))?,
            "{} is not what {SOURCES}/ makes: run `cargo xtask console`",
            committed.join(file).display()
        );
    }
    Ok(())
}

/// Fails if the page is too large.
fn measure(folder: &Path) -> anyhow::Result<()> {
    let mut bytes = 0;
    for file in FILES {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&std::fs::read(folder.join(file))?)?;
        bytes += packer.finish()?.len();
    }
    tools::say(&format!("xtask: the console has {bytes} bytes, compressed"));
    ensure!(
        bytes <= BYTES_MAX,
        "the console may have {BYTES_MAX} bytes, compressed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("is written");
        }
        folder
    }

    #[test]
    fn another_page_is_noticed_and_what_it_takes_is_said() {
        let all = [("index.html", "a"), ("app.js", "b"), ("app.css", "c")];
        let (made, same) = (folder(&all), folder(&all));
        compare(made.path(), same.path()).expect("they are the same");
        measure(made.path()).expect("it is small");
        std::fs::write(same.path().join("app.js"), "d").expect("is written");
        let error = compare(made.path(), same.path()).expect_err("one differs");
        assert!(error.to_string().contains("cargo xtask console"), "{error}");
        for other in [&all[..2], &[&all[..], &[("more.js", "")]].concat()] {
            let other = folder(other);
            compare(made.path(), other.path()).expect_err("one is missing or too many");
            compare(other.path(), made.path()).expect_err("one is missing or too many");
        }
    }

    #[test]
    fn what_is_checked_is_said_in_one_way() {
        assert!(Options::parse(&["--check"]).is_ok_and(|it| it.binary.is_none()));
        let given = Options::parse(&["--check", "--binary", "x"]);
        assert_eq!(given.expect("is known").binary, Some(Path::new("x")));
        for words in [&["--binary", "x"][..], &["--check", "--binary"], &["x"]] {
            Options::parse(words).expect_err("it is not known");
        }
    }
}
