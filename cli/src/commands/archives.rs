//! Reads and writes archives of sessions.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output;

/// Writes the response to the request; a file is replaced only once the response is complete.
pub(crate) async fn export(
    client: &Client,
    request: Request,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let mut target = Target::open(file)?;
    client
        .download(request, |piece| target.write(piece))
        .await?;
    target.finish()
}

/// Where an archive is written: stdout, or a file, which is replaced only once the archive is
/// complete.
#[derive(Debug)]
pub(super) struct Target(Option<Part>);

/// A partial file next to the target; removed unless it becomes the target.
#[derive(Debug)]
struct Part {
    writer: BufWriter<File>,
    path: PathBuf,
    file: PathBuf,
}

impl Target {
    pub(super) fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else {
            return Ok(Self(None));
        };
        let path = beside(file);
        let created = File::create(&path).map_err(|error| failed(&path, &error))?;
        Ok(Self(Some(Part {
            writer: BufWriter::new(created),
            path,
            file: file.to_owned(),
        })))
    }

    pub(super) fn write(&mut self, piece: &[u8]) -> Result<(), Failure> {
        match &mut self.0 {
            None => output::bytes(piece),
            Some(part) => {
                let written = part.writer.write_all(piece);
                written.map_err(|error| failed(&part.path, &error))
            }
        }
    }

    /// Completes the archive and puts it in place.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let Some(part) = &mut self.0 else {
            return Ok(());
        };
        let written = part.writer.flush();
        let written = written.and_then(|()| part.writer.get_ref().sync_all());
        written.map_err(|error| failed(&part.path, &error))?;
        fs::rename(&part.path, &part.file).map_err(|error| failed(&part.file, &error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Best effort: a partial file is useless, and after a rename there is none.
        let _ = fs::remove_file(&self.path);
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Reads an archive; `-` stands for stdin.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().read_to_end(&mut bytes);
        return read.map(|_| bytes).map_err(|e| failed(file, &e));
    }
    fs::read(file).map_err(|error| failed(file, &error))
}

pub(super) fn failed(file: &Path, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::Failure,
    };
    Failure::new(exit, format!("{}: {error}", file.display()))
}
