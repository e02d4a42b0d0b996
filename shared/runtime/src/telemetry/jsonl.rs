//! A log file that is rotated by size. One process writes it at a time.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where and how lines are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonlSettings {
    /// The file. Earlier ones are `PATH.1` and so on, and `PATH.lock` is locked by the writer.
    pub path: PathBuf,
    /// Maximum size of one file in bytes.
    pub bytes_max: u64,
    /// Number of earlier files that are kept.
    pub files_max: u32,
    /// Interval of the check for new lines.
    pub interval: Duration,
}

/// A file that this process may write until this is dropped.
#[derive(Debug)]
pub struct Jsonl {
    settings: JsonlSettings,
    file: File,
    /// Its size in bytes, all of them in complete lines.
    bytes: u64,
    /// The lock, held for the lifetime of this value.
    _lock: File,
}

impl Jsonl {
    /// Opens the file for appending; returns none if another process writes it. An incomplete last
    /// line is removed. Calls `known` with the complete lines of the last two files, in order.
    pub fn open(settings: &JsonlSettings, mut known: impl FnMut(&str)) -> io::Result<Option<Self>> {
        let folder = settings.path.parent();
        if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let lock = options().open(beside(&settings.path, "lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        match File::open(beside(&settings.path, "1")) {
            Ok(earlier) => read(&earlier, &mut known).map(drop)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let (file, bytes) = whole(&settings.path, &mut known)?;
        Ok(Some(Self {
            settings: settings.clone(),
            file,
            bytes,
            _lock: lock,
        }))
    }

    /// Whether the file is empty.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends lines, given without their line ends. If they do not fit into the file, it is
    /// rotated, and the next one begins with `head`; so does a file that was created or emptied
    /// because another program rotated or removed the last one. After a failure some of the lines
    /// may have been written, each of them in full; appending all of them again duplicates these.
    pub fn append(&mut self, head: &str, lines: &[String]) -> io::Result<()> {
        self.follow()?;
        let mut buffer = String::new();
        if self.is_empty() {
            push(&mut buffer, head);
        }
        for line in lines {
            let more = (buffer.len() + line.len() + 1) as u64;
            if self.bytes + more > self.settings.bytes_max
                && self.bytes + buffer.len() as u64 > head.len() as u64 + 1
            {
                self.write(&buffer)?;
                buffer.clear();
                self.rotate()?;
                push(&mut buffer, head);
            }
            push(&mut buffer, line);
        }
        self.write(&buffer)
    }

    /// Makes sure that the open file is the one at the path, and updates its size: another program
    /// may rotate logs, by renaming them or by copying and truncating them.
    fn follow(&mut self) -> io::Result<()> {
        let path = &self.settings.path;
        let ours = self.file.metadata()?;
        let is_ours = match fs::metadata(path) {
            Ok(there) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if is_ours {
            self.bytes = ours.len();
        } else {
            (self.file, self.bytes) = whole(path, &mut |_| {})?;
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // Remove the partial line, so that no other is appended to it.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        let path = &self.settings.path;
        for n in (1..self.settings.files_max).rev() {
            let from = beside(path, &n.to_string());
            match fs::rename(from, beside(path, &(n + 1).to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        fs::rename(path, beside(path, "1"))?;
        self.file = options().create_new(true).open(path)?;
        self.bytes = 0;
        Ok(())
    }
}

/// Opens files readable by their owner only, since they may hold private data, and in append mode,
/// so that lines go to the end even after another program truncated the file.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options
}

/// Opens a file and removes an incomplete last line. Returns the remaining size in bytes.
fn whole(path: &Path, known: &mut impl FnMut(&str)) -> io::Result<(File, u64)> {
    let file = options().read(true).open(path)?;
    let bytes = read(&file, known)?;
    file.set_len(bytes)?;
    Ok((file, bytes))
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// The file's name with a suffix.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(what);
    name.into()
}

/// Reads the complete lines of a file. Returns their size in bytes.
fn read(file: &File, known: &mut impl FnMut(&str)) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    let (mut bytes, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let count = reader.read_until(b'\n', &mut line)?;
        if count == 0 || line.last() != Some(&b'\n') {
            return Ok(bytes);
        }
        bytes += count as u64;
        known(String::from_utf8_lossy(&line).trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(folder: &Path, bytes_max: u64, files_max: u32) -> JsonlSettings {
        JsonlSettings {
            path: folder.join("logs/journal.jsonl"),
            bytes_max,
            files_max,
            interval: Duration::from_secs(1),
        }
    }

    fn open(settings: &JsonlSettings) -> (Jsonl, Vec<String>) {
        let mut known = Vec::new();
        let opened = Jsonl::open(settings, |line| known.push(line.to_owned()));
        (opened.expect("a file").expect("nobody else"), known)
    }

    fn append(file: &mut Jsonl, lines: &[&str]) {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        file.append("head", &lines).expect("there is room");
    }

    fn text(settings: &JsonlSettings, what: &str) -> Option<String> {
        let path = match what {
            "" => settings.path.clone(),
            what => beside(&settings.path, what),
        };
        fs::read_to_string(path).ok()
    }

    #[test]
    fn files_have_their_head_and_are_rotated_by_their_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = settings(folder.path(), 20, 2);
        let (mut file, known) = open(&settings);
        assert!(known.is_empty() && file.is_empty());
        append(&mut file, &["one 4567", "two 4567"]);
        append(&mut file, &["three 67"]);
        append(&mut file, &["longer than any file may be", "five"]);
        assert_eq!(text(&settings, "").as_deref(), Some("head\nfive\n"));
        let longest = Some("head\nlonger than any file may be\n");
        assert_eq!(text(&settings, "1").as_deref(), longest);
        assert_eq!(text(&settings, "2").as_deref(), Some("head\nthree 67\n"));
        assert_eq!(text(&settings, "3"), None, "only so many are kept");
    }

    #[test]
    fn what_was_cut_is_removed_and_what_is_whole_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = settings(folder.path(), 1_000, 2);
        let (mut file, _) = open(&settings);
        append(&mut file, &["one"]);
        drop(file);
        let torn = OpenOptions::new().append(true).open(&settings.path);
        torn.expect("it is there")
            .write_all(b"{\"tw")
            .expect("room");
        let (mut file, known) = open(&settings);
        assert_eq!(known, ["head", "one"]);
        append(&mut file, &["two"]);
        assert_eq!(text(&settings, "").as_deref(), Some("head\none\ntwo\n"));
    }

    #[test]
    fn rotation_by_another_program_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = settings(folder.path(), 1_000, 2);
        let (mut file, _) = open(&settings);
        append(&mut file, &["one"]);
        fs::rename(&settings.path, beside(&settings.path, "old")).expect("put aside");
        append(&mut file, &["two"]);
        assert_eq!(text(&settings, "old").as_deref(), Some("head\none\n"));
        assert_eq!(text(&settings, "").as_deref(), Some("head\ntwo\n"));
        // Renamed, with another file in its place.
        fs::rename(&settings.path, beside(&settings.path, "old")).expect("put aside");
        fs::write(&settings.path, "").expect("a file");
        append(&mut file, &["three"]);
        assert_eq!(text(&settings, "old").as_deref(), Some("head\ntwo\n"));
        assert_eq!(text(&settings, "").as_deref(), Some("head\nthree\n"));
        // Copied and truncated.
        let other = OpenOptions::new().write(true).open(&settings.path);
        other.expect("it is there").set_len(0).expect("emptied");
        append(&mut file, &["four"]);
        append(&mut file, &["five"]);
        assert_eq!(text(&settings, "").as_deref(), Some("head\nfour\nfive\n"));
        assert_eq!(text(&settings, "1"), None);
    }

    #[test]
    fn one_process_writes_and_the_next_one_takes_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = settings(folder.path(), 1_000, 2);
        let (first, _) = open(&settings);
        assert!(Jsonl::open(&settings, |_| {}).expect("a file").is_none());
        drop(first);
        open(&settings);
    }
}
