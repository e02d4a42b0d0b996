//! A session's directory.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use mainspring_shared::id::SessionKey;
use rustix::fs::OFlags;

use super::bits;
use super::target::Target;
use crate::files::work::invalid;
use mainspring_worker::tool::ToolError;

/// A session's directory. No path can leave it.
#[derive(Debug)]
pub(crate) struct SessionDir {
    dir: Dir,
    path: PathBuf,
    session: SessionKey,
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) open: cap_std::fs::File,
    /// Its path in the session's directory, free of links.
    pub(crate) real: PathBuf,
    pub(crate) bytes: u64,
}

impl SessionDir {
    pub(crate) fn new(dir: Dir, path: PathBuf, session: SessionKey) -> Self {
        Self { dir, path, session }
    }

    /// Its absolute path, for processes. This code itself always goes through the handle.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn session(&self) -> SessionKey {
        self.session
    }

    /// Opens a directory; also returns its path in this one.
    pub(crate) fn directory(&self, given: &str) -> Result<(Dir, PathBuf), ToolError> {
        let path = self.relative(given)?;
        let opened = self.dir.open_dir(path);
        let opened = opened.and_then(|dir| Ok((dir, self.dir.canonicalize(path)?)));
        opened.map_err(|error| fault(given, &error))
    }

    /// Opens a file for reading.
    pub(crate) fn file(&self, given: &str) -> Result<File, ToolError> {
        let path = self.relative(given)?;
        let opened = open_regular(&self.dir, path);
        let opened = opened.and_then(|file| {
            Ok(File {
                bytes: file.metadata()?.len(),
                real: self.dir.canonicalize(path)?,
                open: file,
            })
        });
        opened.map_err(|error| fault(given, &error))
    }

    /// The target for writing a file, which need not exist. Creates missing parent directories.
    pub(crate) fn target(&self, given: &str) -> Result<Target, ToolError> {
        let path = self.relative(given)?;
        let Some(name) = path.file_name().filter(|_| !given.ends_with('/')) else {
            return Err(invalid(format!("{given} names a directory")));
        };
        let found = match self.dir.canonicalize(path) {
            Ok(real) => self.parent_of(&real).map(|dir| (dir, real)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.missing(path, name),
            Err(error) => Err(error),
        };
        let (dir, real) = found.map_err(|error| fault(given, &error))?;
        let name = real.file_name().unwrap_or(name).to_owned();
        Ok(Target::new(dir, name, real, given))
    }

    /// The directory of a file that does not exist, created if it is missing, and the file's path.
    fn missing(&self, path: &Path, name: &OsStr) -> io::Result<(Dir, PathBuf)> {
        let dir = match self.parent_of(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.dir
                    .create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
                self.parent_of(path)?
            }
            opened => opened?,
        };
        if dir
            .symlink_metadata(name)
            .is_ok_and(|kind| kind.is_symlink())
        {
            return Err(io::Error::other("it is a link to nothing"));
        }
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => self.dir.canonicalize(parent)?,
            _ => PathBuf::new(),
        };
        let parent = parent.strip_prefix(".").unwrap_or(&parent);
        Ok((dir, parent.join(name)))
    }

    fn parent_of(&self, path: &Path) -> io::Result<Dir> {
        match path.parent() {
            Some(parent) if parent != Path::new("") => self.dir.open_dir(parent),
            _ => self.dir.try_clone(),
        }
    }

    /// The path relative to this directory. It may still try to leave, which the handle refuses.
    fn relative<'p>(&self, given: &'p str) -> Result<&'p Path, ToolError> {
        if given.trim().is_empty() || given.contains('\0') {
            return Err(invalid("a path must name something"));
        }
        if given == "~" || given.starts_with("~/") {
            return Err(invalid(format!(
                "{given} is outside the workspace: there is no home directory"
            )));
        }
        let path = Path::new(given);
        if !path.is_absolute() {
            return Ok(path);
        }
        // Commands see and print the directory's absolute path, and models repeat it.
        match path.strip_prefix(&self.path) {
            Ok(inner) if inner == Path::new("") => Ok(Path::new(".")),
            Ok(inner) => Ok(inner),
            Err(_) => Err(invalid(format!(
                "{given} is outside the workspace: paths are relative to it"
            ))),
        }
    }
}

/// Opens a regular file and nothing else. Does not block, as opening a pipe would.
pub(crate) fn open_regular(dir: &Dir, path: impl AsRef<Path>) -> io::Result<cap_std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(bits(OFlags::NONBLOCK));
    let file = dir.open_with(path, &options)?;
    let kind = file.metadata()?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// The whole content, or `None` if it is longer than `max` bytes.
pub(crate) fn read_whole(file: &mut cap_std::fs::File, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // A file may grow while it is being read.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= max).then_some(bytes))
}

/// What the model is told of a failure, without revealing anything outside the workspace.
pub(crate) fn fault(given: &str, error: &io::Error) -> ToolError {
    let what = match error.kind() {
        // This one comes from cap-std; an error of the operating system would have a number.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            return invalid(format!("{given} is outside the workspace"));
        }
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be accessed".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        io::ErrorKind::NotADirectory => "is not a directory, or leads through a file".to_owned(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "cannot be written: no space is left".to_owned()
        }
        _ => format!("cannot be used: {error}"),
    };
    ToolError::reply(format!("{given} {what}"))
}
