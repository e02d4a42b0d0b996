//! The rules of `.gitignore` and `.ignore` files, from the workspace down.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::files::workspace::open_regular;

/// Files with rules; if a directory has both, the later one wins.
const FILES: &[&str] = &[".gitignore", ".ignore"];

/// Bytes read of each file.
const BYTES_MAX: u64 = 256 << 10;

/// The rules of the directories that a walk is currently in.
#[derive(Debug, Default)]
pub(crate) struct Ignores {
    stack: Vec<Gitignore>,
}

impl Ignores {
    /// Loads the rules of the directories above a place.
    pub(crate) fn above(&mut self, root: &Dir, place: &Path) {
        let mut above = PathBuf::new();
        for component in place.components() {
            let dir = if above == Path::new("") {
                root.try_clone()
            } else {
                root.open_dir(&above)
            };
            if let Ok(dir) = dir {
                self.enter(&dir, &above);
            }
            above.push(component);
        }
    }

    /// Loads a directory's rules; returns whether it has any.
    pub(crate) fn enter(&mut self, dir: &Dir, path: &Path) -> bool {
        let mut builder = GitignoreBuilder::new(path);
        let mut any = false;
        for name in FILES {
            let Some(rules) = read(dir, name) else {
                continue;
            };
            any = true;
            for line in rules.lines() {
                // A line that is not a valid rule has no effect.
                let _ = builder.add_line(None, line);
            }
        }
        let rules = any.then(|| builder.build().ok()).flatten();
        let entered = rules.is_some();
        self.stack.extend(rules);
        entered
    }

    /// Drops the rules loaded last.
    pub(crate) fn leave(&mut self) {
        self.stack.pop();
    }

    /// Whether the rules exclude this path: the innermost directory with a matching rule decides.
    pub(crate) fn ignored(&self, path: &Path, is_dir: bool) -> bool {
        for rules in self.stack.iter().rev() {
            match rules.matched(path, is_dir) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}

fn read(dir: &Dir, name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let file = open_regular(dir, name).ok()?;
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
