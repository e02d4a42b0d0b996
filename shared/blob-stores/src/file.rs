//! Blobs in a folder.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_shared::blob::{BlobPlace, Blobs, Error};
use uuid::Uuid;

/// The store `file`: one file per blob, `TENANT/AA/SHA256-GENERATION`, where `AA` is the beginning
/// of the hash. A file is written under a temporary name, synced and renamed, so that a blob's name
/// always refers to the complete content. All processes of a deployment have to see the same
/// folder.
#[derive(Debug)]
pub struct FileBlobs {
    folder: PathBuf,
}

impl FileBlobs {
    /// A store in this folder, which is created by the first write.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    fn path(&self, place: BlobPlace) -> PathBuf {
        let BlobPlace {
            tenant,
            sha256,
            generation,
        } = place;
        let name = sha256.to_string();
        self.folder
            .join(tenant.0.to_string())
            .join(&name[..2])
            .join(format!("{name}-{}", generation.as_simple()))
    }
}

/// Runs blocking file operations on a thread where they block no other task.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(Error::unavailable)?
        .map_err(Error::unavailable)
}

/// Writes to a temporary file beside the name, with a unique name since two processes may write the
/// same blob.
fn write(path: &Path, data: &[u8], own: Uuid) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let is_new = !folder.exists();
    fs::create_dir_all(folder)?;
    let beside = path.with_extension(format!("{}.part", own.as_simple()));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(data)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&beside, path)) {
        // A partial file is of no use.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    sync(folder)?;
    if is_new {
        let above = folder.ancestors().skip(1).take(2);
        above
            .filter(|folder| !folder.as_os_str().is_empty())
            .try_for_each(sync)?;
    }
    Ok(())
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    // Only Unix can open folders like files; elsewhere a rename is taken to be durable.
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn read(path: &Path, range: Option<Range<u64>>) -> io::Result<Option<Bytes>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut data = Vec::new();
    match range {
        None => file.read_to_end(&mut data)?,
        Some(range) => {
            file.seek(SeekFrom::Start(range.start))?;
            let length = range.end.saturating_sub(range.start);
            file.take(length).read_to_end(&mut data)?
        }
    };
    Ok(Some(data.into()))
}

/// Removes a file, and any temporary files of writers that died.
fn remove(path: &Path) -> io::Result<()> {
    let absent = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    };
    fs::remove_file(path).or_else(absent)?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let name = name.to_string_lossy().into_owned();
    let entries = match fs::read_dir(folder) {
        Err(error) => return absent(error),
        Ok(entries) => entries,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&name) {
            fs::remove_file(entry.path()).or_else(absent)?;
        }
    }
    Ok(())
}

#[async_trait]
impl Blobs for FileBlobs {
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error> {
        let path = self.path(place);
        beside(move || write(&path, &data, crate::own_name())).await
    }

    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        let path = self.path(place);
        beside(move || read(&path, range)).await
    }

    async fn exists(&self, place: BlobPlace) -> Result<bool, Error> {
        let path = self.path(place);
        beside(move || path.try_exists()).await
    }

    async fn delete(&self, place: BlobPlace) -> Result<(), Error> {
        let path = self.path(place);
        beside(move || remove(&path)).await
    }

    async fn check(&self) -> Result<(), Error> {
        crate::write_read_delete(self).await
    }

    fn describe(&self) -> String {
        format!("files in {}", self.folder.display())
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::blob::BlobHash;
    use mainspring_shared::id::TenantId;

    use super::*;

    fn place(n: u128) -> BlobPlace {
        BlobPlace {
            tenant: TenantId::DEFAULT,
            sha256: BlobHash::of(b"some bytes"),
            generation: Uuid::from_u128(n),
        }
    }

    fn files(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                found.extend(files(&path));
            } else {
                let name = path.file_name().expect("a name").to_string_lossy();
                found.push(name.into_owned());
            }
        }
        found
    }

    #[tokio::test]
    async fn what_is_put_is_found_whole_or_in_part_until_it_is_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let blobs = FileBlobs::new(folder.path().join("blobs"));
        let data = Bytes::from_static(b"some bytes");
        assert_eq!(blobs.get(place(1), None).await.expect("answers"), None);
        for _ in 0..2 {
            blobs.put(place(1), data.clone()).await.expect("is put");
        }
        assert!(blobs.exists(place(1)).await.expect("answers"));
        assert!(!blobs.exists(place(2)).await.expect("answers"));
        let whole = blobs.get(place(1), None).await.expect("answers");
        assert_eq!(whole, Some(data));
        let part = blobs.get(place(1), Some(5..99)).await.expect("answers");
        assert_eq!(part, Some(Bytes::from_static(b"bytes")));
        assert_eq!(files(folder.path()).len(), 1, "nothing is left beside it");
        // Left behind by a writer that died.
        let path = blobs.path(place(1)).with_extension("x.part");
        fs::write(path, "so").expect("writes");
        for _ in 0..2 {
            blobs.delete(place(1)).await.expect("is deleted");
        }
        assert_eq!(files(folder.path()), Vec::<String>::new());
        assert_eq!(blobs.get(place(1), None).await.expect("answers"), None);
    }

    #[tokio::test]
    async fn writers_of_the_same_blob_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let blobs = std::sync::Arc::new(FileBlobs::new(folder.path()));
        let data = Bytes::from(vec![7; 300_000]);
        let writers = (0..8).map(|_| {
            let (blobs, data) = (blobs.clone(), data.clone());
            tokio::spawn(async move { blobs.put(place(1), data).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("no panic").expect("is put");
        }
        assert_eq!(
            blobs.get(place(1), None).await.expect("answers"),
            Some(data)
        );
        assert_eq!(files(folder.path()).len(), 1);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_found_by_the_check() {
        let folder = tempfile::tempdir().expect("a folder");
        let blobs = FileBlobs::new(folder.path());
        blobs.check().await.expect("can be written");
        assert_eq!(files(folder.path()), Vec::<String>::new());
        let taken = folder.path().join("taken");
        fs::write(&taken, "a file").expect("writes");
        FileBlobs::new(&taken).check().await.expect_err("is a file");
    }
}
