//! A folder that remembers which `once` calls were begun, over the death of a loop.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::call::segment;
use crate::types::ResultBody;

/// All loops of one machine that share it never both make a call: a loop holds a lock on the file of a call that it makes, and
/// finds there what one that died had come to.
#[derive(Debug, Clone)]
pub(crate) struct Journal(PathBuf);

impl Journal {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self(folder.to_owned()))
    }

    /// What is known of a call, which nobody else takes meanwhile; `None` if another has it.
    pub(crate) fn take(&self, call_id: &str) -> io::Result<Option<Entry>> {
        let path = self.0.join(segment(call_id));
        loop {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            // Whoever had it may be through with it, and have removed it meanwhile.
            if is_there(&path, &file)? {
                return Ok(Some(Entry::read(path, file, &text)));
            }
        }
    }
}

#[cfg(unix)]
fn is_there(_: &Path, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;

    Ok(file.metadata()?.nlink() > 0)
}

#[cfg(not(unix))]
fn is_there(path: &Path, _: &File) -> io::Result<bool> {
    Ok(path.exists())
}

/// What is known of one call. Dropping it lets others take the call.
#[derive(Debug)]
pub(crate) struct Entry {
    path: PathBuf,
    file: File,
    pub(crate) begun: bool,
    pub(crate) result: Option<ResultBody>,
}

impl Entry {
    fn read(path: PathBuf, file: File, text: &str) -> Self {
        // A line without its end was being written when its process died.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut lines = whole.lines();
        Self {
            path,
            file,
            begun: lines.next().is_some_and(|line| !line.is_empty()),
            result: lines
                .next()
                .and_then(|line| serde_json::from_str(line).ok()),
        }
    }

    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.note("begun")?;
        match self.path.parent() {
            // So that the file itself outlives the machine's death.
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    pub(crate) fn end(&mut self, result: &ResultBody) -> io::Result<()> {
        self.note(&serde_json::to_string(result)?)
    }

    fn note(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.file.sync_all()
    }

    pub(crate) fn forget(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_one_maker_and_is_remembered_until_it_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::open(folder.path()).expect("a journal");
        let take = || journal.take("call_1/x").expect("a file");
        let mut entry = take().expect("nobody has it");
        assert!(!entry.begun && take().is_none());
        entry.begin().expect("noted");
        drop(entry);
        let mut entry = take().expect("its maker is gone");
        assert!(entry.begun && entry.result.is_none());
        let result = ResultBody {
            call_id: "call_1/x".to_owned(),
            output: Some(1.into()),
            ..ResultBody::default()
        };
        entry.end(&result).expect("noted");
        drop(entry);
        let entry = take().expect("its maker is gone");
        assert_eq!(entry.result.as_ref(), Some(&result));
        entry.forget().expect("removed");
        assert!(!take().expect("it is new").begun);
    }

    #[test]
    fn a_torn_line_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::open(folder.path()).expect("a journal");
        std::fs::write(folder.path().join("c"), "begun\n{\"call_id\":\"c\",\"out")
            .expect("written");
        let entry = journal.take("c").expect("a file").expect("nobody has it");
        assert!(entry.begun && entry.result.is_none());
    }
}
