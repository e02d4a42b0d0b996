//! Archives of sessions, from and to files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output;

/// Writes what the request is answered with; into a file only once it is whole.
pub(crate) async fn export(
    client: &Client,
    request: Request,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let Some(file) = file else {
        return client.download(request, output::bytes).await;
    };
    let part = beside(file);
    let written = into(client, request, &part).await;
    let written = written.and_then(|()| fs::rename(&part, file).map_err(|e| failed(file, &e)));
    if written.is_err() {
        // What is left of it is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&part);
    }
    written
}

async fn into(client: &Client, request: Request, part: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| failed(part, &error);
    let mut writer = BufWriter::new(File::create(part).map_err(failed)?);
    client
        .download(request, |piece| writer.write_all(piece).map_err(failed))
        .await?;
    let file = writer.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)
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

fn failed(file: &Path, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::Failure,
    };
    Failure::new(exit, format!("{}: {error}", file.display()))
}
