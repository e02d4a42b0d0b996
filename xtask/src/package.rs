//! Makes what is installed without a compiler: an archive, a Debian package, a wheel, an npm package and an image.

mod contents;
mod deb;
mod elf;
mod image;
mod npm;
mod program;
mod sbom;
mod tree;
mod trial;
mod trials;
mod wheel;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use self::contents::Contents;
use self::tree::Effort;
pub(crate) use self::trials::dry_runs;
use crate::{packages, process, tools};

/// The most bytes of what is published.
const WHEEL_MAX: usize = 25_000_000;
const NPM_MAX: usize = 25_000_000;
const IMAGE_MAX: usize = 40_000_000;

/// The file with the hashes of the others.
const SUMS: &str = "SHA256SUMS";

/// The options of `cargo xtask package`.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// A program that was built already; it is packed without its symbols, and little compressed.
    binary: Option<&'a Path>,
    /// Only makes the packages.
    is_untried: bool,
}

impl<'a> Options<'a> {
    /// Packs this program.
    pub(crate) fn of(binary: &'a Path) -> Self {
        Self {
            binary: Some(binary),
            is_untried: false,
        }
    }

    /// Reads `--binary FILE` and `--untried`.
    pub(crate) fn parse(words: &[&'a str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word {
                "--binary" => {
                    let file = words.next().context("--binary takes a file")?;
                    options.binary = Some(file.as_ref());
                }
                "--untried" => options.is_untried = true,
                strange => bail!("package takes --binary FILE and --untried, not {strange}"),
            }
        }
        Ok(options)
    }
}

/// Makes every package, and tries each.
pub(crate) fn run(options: &Options<'_>) -> anyhow::Result<()> {
    process::interrupted();
    let program = match options.binary {
        Some(binary) => program::given(binary)?,
        None => program::built()?,
    };
    let effort = match options.binary {
        Some(_) => Effort::Little,
        None => Effort::All,
    };
    let contents = Contents::read(program)?;
    let made = Packages::make(&contents, effort)?;
    if effort == Effort::All {
        ensure!(
            contents.program.needs == elf::Needs::Nothing,
            "the published program needs something of the system: {:?}",
            contents.program.needs
        );
        made.are_small()?;
    }
    let folder = packages::target()?.join("package");
    made.write(&folder)?;
    for line in made.summary(&contents).lines() {
        tools::say(&format!("xtask: {line}"));
    }
    if options.is_untried {
        return Ok(());
    }
    // Trials mostly wait for what they install.
    std::thread::scope(|scope| {
        let again =
            scope.spawn(|| Packages::make(&Contents::read(contents.program.clone())?, effort));
        let tried = trials::run_all(&contents, &made, &folder);
        let again = again.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        made.are(&again).and(tried)
    })
}

/// The packages, each with the name of its file.
#[derive(Debug)]
struct Packages {
    archive: (String, Vec<u8>),
    deb: (String, Vec<u8>),
    wheel: (String, Vec<u8>),
    npm: (String, Vec<u8>),
    image: image::Image,
    sbom: (String, Vec<u8>),
}

impl Packages {
    /// Packs what was read; the same contents give the same bytes.
    fn make(contents: &Contents, effort: Effort) -> anyhow::Result<Self> {
        let archive = contents.archive()?.tar(contents.epoch)?;
        Ok(Self {
            archive: (
                format!("{}.tar.gz", contents.archive_name()),
                tree::gzip(&archive, effort)?,
            ),
            deb: deb::make(contents, effort)?,
            wheel: wheel::make(contents, effort)?,
            npm: npm::make(contents, effort)?,
            image: image::make(contents, effort)?,
            sbom: (
                format!("mainspring-{}.cdx.json", contents.version),
                contents.sbom.clone(),
            ),
        })
    }

    fn all(&self) -> [(&str, &[u8]); 6] {
        [
            (&self.archive.0, &self.archive.1),
            (&self.deb.0, &self.deb.1),
            (&self.wheel.0, &self.wheel.1),
            (&self.npm.0, &self.npm.1),
            (&self.image.name, &self.image.bytes),
            (&self.sbom.0, &self.sbom.1),
        ]
    }

    /// Writes them to an empty folder, with their hashes.
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        for (name, bytes) in self.all() {
            std::fs::write(folder.join(name), bytes)?;
        }
        sums(folder)
    }

    /// Fails if another build of the same is not the same, to the byte.
    fn are(&self, again: &Self) -> anyhow::Result<()> {
        for ((name, bytes), (_, other)) in self.all().into_iter().zip(again.all()) {
            ensure!(
                bytes == other,
                "{name} is not the same when it is made again"
            );
        }
        Ok(())
    }

    fn are_small(&self) -> anyhow::Result<()> {
        let sizes = [
            (&self.wheel.0, self.wheel.1.len(), WHEEL_MAX),
            (&self.npm.0, self.npm.1.len(), NPM_MAX),
            (&self.image.name, self.image.bytes.len(), IMAGE_MAX),
        ];
        for (name, size, max) in sizes {
            ensure!(size <= max, "{name} has {size} bytes, of at most {max}");
        }
        Ok(())
    }

    fn summary(&self, contents: &Contents) -> String {
        let mut lines = format!(
            "mainspring {} for {}: {} bytes, needs {:?}\n",
            contents.version,
            contents.program.processor.name,
            contents.program.bytes.len(),
            contents.program.needs
        );
        for (name, bytes) in self.all() {
            let _ = writeln!(lines, "{name}: {} bytes", bytes.len());
        }
        let _ = writeln!(lines, "the image is {}", self.image.digest);
        lines
    }
}

/// Writes the hash of each package in a folder beside them, as `sha256sum` does.
pub(crate) fn sums(folder: &Path) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name != SUMS {
            lines.push((name, sha256(&std::fs::read(file.path())?)));
        }
    }
    lines.sort();
    let mut sums = String::new();
    for (name, hash) in lines {
        writeln!(sums, "{hash}  {name}")?;
    }
    std::fs::write(folder.join(SUMS), sums)?;
    Ok(())
}

/// The SHA-256 of bytes, in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The folder in which packages are tried, on a disk that programs can be started from.
fn scratch() -> anyhow::Result<PathBuf> {
    let folder = packages::target()?.join("package-trials");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
