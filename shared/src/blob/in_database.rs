//! A blob store in the database itself, in rows of bounded size.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use super::{BlobPlace, Blobs, Error};
use crate::store::Store;

/// Bytes per row: below the default maximum packet size of servers, and small enough for short
/// transactions.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Maximum number of rows that one transaction removes.
const DROPPED_AT_ONCE: u32 = 16;

/// The store `database`: rows of [`CHUNK_BYTES`] each, written one per transaction.
#[derive(Debug)]
pub struct InDatabase {
    store: Arc<dyn Store>,
}

impl InDatabase {
    /// Stores bytes in this database.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

fn chunk(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

#[async_trait]
impl Blobs for InDatabase {
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error> {
        // An empty blob has one empty row, so that it exists.
        for n in 0..data.len().div_ceil(CHUNK_BYTES).max(1) {
            let end = data.len().min((n + 1) * CHUNK_BYTES);
            let piece = data.slice(n * CHUNK_BYTES..end);
            self.store.write_blob_chunk(place, chunk(n), piece).await?;
        }
        Ok(())
    }

    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        let size = CHUNK_BYTES as u64;
        let range = range.unwrap_or(0..u64::MAX);
        let first = range.start / size;
        let mut pieces = BytesMut::new();
        for n in first.. {
            if n * size >= range.end && n > first {
                break;
            }
            let index = i32::try_from(n).unwrap_or(i32::MAX);
            let Some(piece) = self.store.read_blob_chunk(place, index).await? else {
                if n == first {
                    return Ok(None);
                }
                break;
            };
            let from = range.start.saturating_sub(n * size).min(piece.len() as u64);
            let until = range.end.saturating_sub(n * size).min(piece.len() as u64);
            let (from, until) = (from as usize, until.max(from) as usize);
            pieces.extend_from_slice(&piece[from..until]);
            if piece.len() < CHUNK_BYTES {
                break;
            }
        }
        Ok(Some(pieces.freeze()))
    }

    async fn exists(&self, place: BlobPlace) -> Result<bool, Error> {
        Ok(self.store.read_blob_chunk(place, 0).await?.is_some())
    }

    async fn delete(&self, place: BlobPlace) -> Result<(), Error> {
        // The last rows are dropped first, so that `exists`, which reads the first one, is true
        // until all of them are gone.
        while self.store.drop_blob_chunks(place, DROPPED_AT_ONCE).await? > 0 {}
        Ok(())
    }

    async fn check(&self) -> Result<(), Error> {
        self.store.check().await?;
        Ok(())
    }

    fn describe(&self) -> String {
        "in the database".to_owned()
    }
}
