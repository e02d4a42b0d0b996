//! A file to be written.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, Permissions, PermissionsExt as _};
use tokio_util::sync::CancellationToken;

use super::session_dir::{fault, open_regular, read_whole};
use crate::files::stamps::Digest;
use crate::files::work::stopped;
use mainspring_worker::tool::ToolError;

/// The target of a write: a name in an open directory. It never writes through a symbolic link: a
/// complete new file takes over the name in one atomic step.
#[derive(Debug)]
pub(crate) struct Target {
    dir: Dir,
    name: OsString,
    real: PathBuf,
    given: String,
}

/// The file that exists at a target.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
    mode: u32,
}

impl Target {
    pub(crate) fn new(dir: Dir, name: OsString, real: PathBuf, given: &str) -> Self {
        Self {
            dir,
            name,
            real,
            given: given.to_owned(),
        }
    }

    /// Its path in the session's directory, free of links.
    pub(crate) fn real(&self) -> &Path {
        &self.real
    }

    /// Reads the file that is there, if any.
    pub(crate) fn read(&self, max: u64) -> Result<Option<Present>, ToolError> {
        let mut file = match open_regular(&self.dir, &self.name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.fault(&error)),
        };
        let permissions = file.metadata().map_err(|error| self.fault(&error))?;
        let permissions = permissions.permissions();
        if permissions.readonly() {
            return Err(ToolError::reply(format!("{} is read-only", self.given)));
        }
        match read_whole(&mut file, max) {
            Ok(Some(bytes)) => Ok(Some(Present {
                digest: Digest::of(&bytes),
                bytes,
                mode: permissions.mode() & 0o777,
            })),
            Ok(None) => Err(ToolError::reply(format!(
                "{} is larger than {max} bytes, the most that can be changed",
                self.given
            ))),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Replaces the previous file with this content. Fails without changing anything if that file
    /// has changed meanwhile. The temporary file is named after `call_id`, so that a repeat of the
    /// call finds and removes what a crash left behind.
    pub(crate) fn put(
        &self,
        content: &[u8],
        before: Option<&Present>,
        call_id: &str,
        stop: &CancellationToken,
    ) -> Result<(), ToolError> {
        let name = format!(".mainspring-{}.tmp", Digest::of(call_id.as_bytes()).short());
        let temporary = Temporary {
            dir: &self.dir,
            name: &name,
        };
        let mode = before.map(|before| before.mode);
        let written = temporary.write(content, mode);
        written.map_err(|error| self.fault(&error))?;
        if stop.is_cancelled() {
            return Err(stopped());
        }
        match before {
            Some(before) => self.replace(&name, before),
            None => self.create(&name),
        }
    }

    /// Writes this content with this mode, replacing whatever is there.
    pub(crate) fn place(&self, content: &[u8], mode: u32, call_id: &str) -> Result<(), ToolError> {
        let name = format!(".mainspring-{}.tmp", Digest::of(call_id.as_bytes()).short());
        let temporary = Temporary {
            dir: &self.dir,
            name: &name,
        };
        let placed = temporary.write(content, Some(mode));
        let placed = placed.and_then(|()| self.dir.rename(&name, &self.dir, &self.name));
        placed.map_err(|error| self.fault(&error))
    }

    fn replace(&self, temporary: &str, before: &Present) -> Result<(), ToolError> {
        let now = self.read(before.bytes.len() as u64).ok().flatten();
        if now.map(|now| now.digest) != Some(before.digest) {
            return Err(self.changed());
        }
        let renamed = self.dir.rename(temporary, &self.dir, &self.name);
        renamed.map_err(|error| self.fault(&error))
    }

    fn create(&self, temporary: &str) -> Result<(), ToolError> {
        // Unlike a rename, a hard link never replaces a file that appeared in the meantime.
        match self.dir.hard_link(temporary, &self.dir, &self.name) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(self.changed()),
            // Some file systems have no hard links.
            Err(_) => {
                let renamed = self.dir.rename(temporary, &self.dir, &self.name);
                renamed.map_err(|error| self.fault(&error))
            }
        }
    }

    fn changed(&self) -> ToolError {
        ToolError::reply(format!(
            "{} changed just now; nothing was written; read it again",
            self.given
        ))
    }

    fn fault(&self, error: &io::Error) -> ToolError {
        fault(&self.given, error)
    }
}

/// A temporary file that is removed on drop unless it was renamed.
#[derive(Debug)]
struct Temporary<'a> {
    dir: &'a Dir,
    name: &'a str,
}

impl Temporary<'_> {
    fn write(&self, content: &[u8], mode: Option<u32>) -> io::Result<()> {
        let _ = self.dir.remove_file(self.name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = self.dir.open_with(self.name, &options)?;
        if let Some(mode) = mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        file.write_all(content)?;
        // If the result "written" survives a power failure, so must the content.
        file.sync_data()
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        let _ = self.dir.remove_file(self.name);
    }
}
