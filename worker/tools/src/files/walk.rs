//! Walks a workspace by directory handles: no symbolic link is followed, and one that appears
//! during the walk cannot lead outside.

mod ignores;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::Dir;
use globset::{GlobBuilder, GlobMatcher};
use mainspring_shared::time::Clock;
use tokio_util::sync::CancellationToken;

use self::ignores::Ignores;
use crate::files::work::invalid;
use crate::files::workspace::SessionDir;
use crate::settings::Limits;
use mainspring_worker::tool::ToolError;

/// Maximum nesting depth of the walk; each open level holds a file descriptor.
const DEPTH_MAX: usize = 64;

/// Maximum bytes of a pattern: a longer one could compile to more than fits into memory.
const PATTERN_BYTES_MAX: usize = 1_000;

/// Directories of generated or third-party content, which are seldom meant.
const SKIPPED: &[&str] = &[
    ".git",
    ".hg",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    "__pycache__",
    "build",
    "dist",
    "node_modules",
    "target",
    "vendor",
];

/// Which entries a walk visits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub(crate) hidden: bool,
    pub(crate) ignored: bool,
    /// Directory names that the model wrote explicitly, so they are not skipped.
    named: Vec<OsString>,
}

impl Scope {
    pub(crate) fn new(hidden: bool, ignored: bool) -> Self {
        Self {
            hidden,
            ignored,
            named: Vec::new(),
        }
    }

    /// Records the names in a path or pattern.
    pub(crate) fn name(&mut self, path: &str) {
        for component in Path::new(path).components() {
            if let Component::Normal(name) = component {
                self.hidden |= name.as_encoded_bytes().starts_with(b".");
                self.named.push(name.to_owned());
            }
        }
    }

    fn skips(&self, name: &OsString, is_dir: bool) -> bool {
        if !self.hidden && name.as_encoded_bytes().starts_with(b".") {
            return true;
        }
        let skipped = SKIPPED.iter().any(|skipped| name == skipped);
        is_dir && skipped && !self.ignored && !self.named.contains(name)
    }
}

/// A file found by the walk.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) dir: &'a Dir,
    pub(crate) name: &'a OsString,
    /// Relative to the workspace.
    pub(crate) path: &'a Path,
    /// Relative to where the walk started.
    pub(crate) below: &'a Path,
    pub(crate) is_link: bool,
}

/// Why a walk did not visit everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutShort {
    Time,
    Entries,
    Stopped,
}

/// The limits at which a walk gives up.
#[derive(Debug)]
pub(crate) struct WalkLimits {
    clock: Arc<dyn Clock>,
    until: Duration,
    stop: CancellationToken,
    entries: usize,
}

impl WalkLimits {
    pub(crate) fn new(limits: &Limits, clock: Arc<dyn Clock>, stop: CancellationToken) -> Self {
        Self {
            until: clock.monotonic() + limits.walk_time_max,
            clock,
            stop,
            entries: limits.walk_entries_max,
        }
    }

    /// The limit that has been reached, if any.
    pub(crate) fn reached(&self) -> Option<CutShort> {
        if self.stop.is_cancelled() {
            Some(CutShort::Stopped)
        } else if self.clock.monotonic() >= self.until {
            Some(CutShort::Time)
        } else {
            (self.entries == 0).then_some(CutShort::Entries)
        }
    }
}

impl CutShort {
    /// A note for the model, appended to what was found.
    pub(crate) fn said(self) -> &'static str {
        match self {
            Self::Time => "[… the search took too long: there may be more; narrow the search]",
            Self::Entries => "[… too many files: there may be more; narrow the search]",
            Self::Stopped => "[… the search was stopped: there may be more]",
        }
    }
}

/// Visits every file below a directory, in the order of their names, until `visit` breaks or a
/// limit is reached.
pub(crate) fn walk(
    session_dir: &SessionDir,
    given: &str,
    scope: &Scope,
    limits: &mut WalkLimits,
    visit: &mut dyn FnMut(&WalkLimits, Entry<'_>) -> ControlFlow<()>,
) -> Result<Option<CutShort>, ToolError> {
    let (dir, real) = session_dir.directory(given)?;
    let real = match real.strip_prefix(".") {
        Ok(inner) => inner.to_owned(),
        Err(_) => real,
    };
    let mut ignores = Ignores::default();
    if !scope.ignored {
        let (root, _) = session_dir.directory(".")?;
        ignores.above(&root, &real);
    }
    let mut walk = Walk {
        start: real.clone(),
        scope,
        limits,
        ignores,
        visit,
        cut_short: None,
    };
    // `cut_short` says whether it was cut short; if `visit` broke off, the caller knows.
    let _ = walk.directory(&dir, &real, 0);
    Ok(walk.cut_short)
}

struct Walk<'a> {
    start: PathBuf,
    scope: &'a Scope,
    limits: &'a mut WalkLimits,
    ignores: Ignores,
    visit: &'a mut dyn FnMut(&WalkLimits, Entry<'_>) -> ControlFlow<()>,
    cut_short: Option<CutShort>,
}

impl Walk<'_> {
    fn directory(&mut self, dir: &Dir, path: &Path, depth: usize) -> ControlFlow<()> {
        let entered = !self.scope.ignored && self.ignores.enter(dir, path);
        let flow = self.entries(dir, path, depth);
        if entered {
            self.ignores.leave();
        }
        flow
    }

    fn entries(&mut self, dir: &Dir, path: &Path, depth: usize) -> ControlFlow<()> {
        // Only names are kept, so that the memory of a walk is bounded by its entry limit.
        let mut names = Vec::new();
        // Unreadable entries are treated as absent.
        for entry in dir.entries().into_iter().flatten().flatten() {
            if let Some(cut_short) = self.limits.reached() {
                self.cut_short = Some(cut_short);
                return ControlFlow::Break(());
            }
            self.limits.entries -= 1;
            if let Ok(kind) = entry.file_type() {
                names.push((entry.file_name(), kind.is_dir(), kind.is_symlink()));
            }
        }
        names.sort();
        for (name, is_dir, is_link) in names {
            if let Some(cut_short @ (CutShort::Stopped | CutShort::Time)) = self.limits.reached() {
                self.cut_short = Some(cut_short);
                return ControlFlow::Break(());
            }
            let path = path.join(&name);
            if self.scope.skips(&name, is_dir) || self.ignores.ignored(&path, is_dir) {
                continue;
            }
            if !is_dir {
                let below = path.strip_prefix(&self.start).unwrap_or(&path);
                let entry = Entry {
                    dir,
                    name: &name,
                    path: &path,
                    below,
                    is_link,
                };
                (self.visit)(self.limits, entry)?;
            } else if depth < DEPTH_MAX
                // It may have become a link by now, which cannot lead out of this directory.
                && let Ok(inner) = dir.open_dir(&name)
            {
                self.directory(&inner, &path, depth + 1)?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// A path pattern. A pattern without a slash matches at any depth.
pub(crate) fn pattern(given: &str) -> Result<GlobMatcher, ToolError> {
    if given.len() > PATTERN_BYTES_MAX {
        return Err(invalid(format!(
            "a pattern has at most {PATTERN_BYTES_MAX} bytes"
        )));
    }
    let plain = given.strip_prefix("./").unwrap_or(given);
    let path = Path::new(plain);
    if path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(invalid(format!(
            "{given} is outside the directory that is searched: patterns are relative to it"
        )));
    }
    let anywhere;
    let full = if plain.contains('/') {
        plain
    } else {
        anywhere = format!("**/{plain}");
        &anywhere
    };
    let glob = GlobBuilder::new(full).literal_separator(true).build();
    match glob {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => Err(invalid(format!(
            "{given} is not a pattern: {}",
            error.kind()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_costs_no_more_than_its_length_however_it_is_nested() {
        for long in [
            "?".repeat(100_000),
            "{a,b}".repeat(100_000),
            "[!a]".repeat(100_000),
        ] {
            let error = pattern(&long).expect_err("is too long");
            assert!(
                format!("{error:?}").contains("at most 1000 bytes"),
                "{error:?}"
            );
        }
        let alternatives = pattern(&format!("{}b", "{a,aa}".repeat(160))).expect("is a pattern");
        assert!(!alternatives.is_match("a".repeat(320)));
        let stars = pattern(&format!("{}b", "*a".repeat(400))).expect("is a pattern");
        assert!(!stars.is_match("a".repeat(4_000)));
    }
}
