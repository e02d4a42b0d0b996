//! The lock file: one process per data directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use mainspring_shared::store::Error;

/// The file's name in the data directory.
const NAME: &str = "mainspring.lock";

/// Enough for a pid and a name; a longer file was not written here.
const HOLDER_MAX: u64 = 512;

/// The lock of a data directory. The system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Locks the directory, which is created if necessary, and writes this process's id and name
    /// into the lock file.
    pub(crate) fn take(dir: &Path, name: &str) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).map_err(unavailable)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(NAME))
            .map_err(unavailable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked {
                    path: dir.display().to_string(),
                    holder: holder(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
        }
        file.set_len(0).map_err(unavailable)?;
        writeln!(file, "pid {}, {name}", std::process::id()).map_err(unavailable)?;
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // The directory is locked even if the holder has not written its name yet, or the system hides
    // it.
    let _ = file.take(HOLDER_MAX).read_to_string(&mut text);
    match text.trim() {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    }
}

fn unavailable(error: std::io::Error) -> Error {
    Error::Unavailable {
        source: Box::new(error),
    }
}
