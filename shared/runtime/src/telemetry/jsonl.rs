//! A file of lines that is rotated by its size. One process writes it at a time.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonlSettings {
    /// The file; earlier ones are `PATH.1` and so on, and `PATH.lock` says who writes.
    pub path: PathBuf,
    /// Bytes of one file.
    pub bytes_max: u64,
    /// Earlier files that are kept.
    pub files_max: u32,
    /// How often it is looked for new lines.
    pub interval: Duration,
}

/// A file that this process writes, until it is dropped.
#[derive(Debug)]
pub struct Jsonl {
    settings: JsonlSettings,
    file: File,
    /// Bytes of it, all of them in whole lines.
    bytes: u64,
    /// Held for as long as this is.
    _lock: File,
}

impl Jsonl {
    /// Opens the file to write behind what is there; none where another process writes it. A last line that
    /// was cut is removed. `known` is told of the whole lines of the last two files, in their order.
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

    /// Whether nothing is in the file.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends lines, each without its end. A file that they do not fit into is put aside, and the next one
    /// begins with `head`; so does one that stands there since another program put aside, removed or emptied the
    /// last one. After a failure some of the lines may be there, all of them whole: whoever appends them again writes
    /// those twice.
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

    /// Makes sure that what is written is found under the path, and how much is there: another program may rotate
    /// logs, by renaming them or by copying and emptying them.
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
            // Nobody is to read half a line behind which others stand.
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

/// What is in it may be nobody else's business. Whatever becomes of the file, lines go behind what is there then.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options
}

/// Opens a file and removes a last line that was cut; how many bytes are left.
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

/// A file's name with something behind it.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(what);
    name.into()
}

/// Reads the whole lines of a file; how many bytes they take.
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
        // Put aside, and another one in its place.
        fs::rename(&settings.path, beside(&settings.path, "old")).expect("put aside");
        fs::write(&settings.path, "").expect("a file");
        append(&mut file, &["three"]);
        assert_eq!(text(&settings, "old").as_deref(), Some("head\ntwo\n"));
        assert_eq!(text(&settings, "").as_deref(), Some("head\nthree\n"));
        // Copied and emptied.
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
