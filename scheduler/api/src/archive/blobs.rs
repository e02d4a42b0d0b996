//! The content of blobs in archives: in pieces, so that no line is long.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mainspring_scheduler::error::Error;
use mainspring_shared::blob::{BlobHash, BlobRef};
use mainspring_shared::error::Code;
use mainspring_shared::message::is_media_type;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::extract::parse;

/// Bytes of a piece when writing, so that its line is shorter than a mebibyte. Pieces that are read
/// may have any length.
pub(crate) const PIECE_BYTES: usize = 765 << 10;

/// Distinguishes the line of a piece from other lines.
#[derive(Debug, Deserialize)]
struct Peek {
    blob: Option<IgnoredAny>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Piece {
    blob: BlobRef,
    /// Bytes of the blob before this piece.
    at: u64,
    /// The bytes in base64.
    data: String,
}

/// The piece of a blob with this content that starts at `at`.
pub(super) fn piece(blob: &BlobRef, data: &[u8], at: usize) -> Piece {
    let end = data.len().min(at + PIECE_BYTES);
    Piece {
        blob: blob.clone(),
        at: at as u64,
        data: STANDARD.encode(&data[at..end]),
    }
}

/// Whether a line contains a piece.
pub(super) fn is_piece(line: &[u8]) -> bool {
    serde_json::from_slice(line).is_ok_and(|peek: Peek| peek.blob.is_some())
}

/// A completely received blob.
#[derive(Debug)]
pub(in super::super) struct Content {
    pub(in super::super) media_type: String,
    pub(in super::super) data: Bytes,
}

/// Blobs being received, one at a time.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes_max: usize,
    /// The incomplete blob.
    open: Option<(BlobRef, Vec<u8>)>,
    whole: Option<Content>,
    /// Blobs that were received completely or in part.
    known: BTreeSet<BlobHash>,
    /// Bytes of lines since the last call of `carried`.
    carried: usize,
    count: u64,
}

impl Incoming {
    pub(super) fn bounded(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// Whether a blob is incomplete.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Bytes held in memory.
    pub(super) fn bytes(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |(_, data)| data.len());
        open + self.whole.as_ref().map_or(0, |whole| whole.data.len())
    }

    /// Takes a line with a piece.
    pub(super) fn push(&mut self, line: &[u8]) -> Result<(), Error> {
        let piece: Piece = parse(line, "")?;
        let blob = piece.blob;
        if !is_media_type(&blob.media_type) {
            return Err(Error::invalid("/blob/media_type", "must be like image/png"));
        }
        if blob.bytes > self.bytes_max as u64 {
            let detail = format!("a blob has at most {} bytes here", self.bytes_max);
            return Err(Error::new(Code::BlobTooLarge, detail));
        }
        let more = STANDARD.decode(&piece.data);
        let more = more.map_err(|_| Error::invalid("/data", "must be base64"))?;
        let mut data = match self.open.take() {
            Some((open, data)) if open == blob => data,
            Some(_) => {
                let detail = "must be that of the piece before, which is not the last one";
                return Err(Error::invalid("/blob", detail));
            }
            None if self.known.insert(blob.sha256) => Vec::new(),
            None => return Err(Error::invalid("/blob/sha256", "came before")),
        };
        if piece.at != data.len() as u64 {
            let detail = format!("must be {}", data.len());
            return Err(Error::invalid("/at", detail));
        }
        data.extend_from_slice(&more);
        self.carried += line.len() + 1;
        let length = data.len() as u64;
        if length < blob.bytes {
            if more.is_empty() {
                return Err(Error::invalid("/data", "must not be empty"));
            }
            self.open = Some((blob, data));
            return Ok(());
        }
        if length > blob.bytes || BlobHash::of(&data) != blob.sha256 {
            return Err(Error::invalid(
                "/data",
                "does not have the hash of the blob",
            ));
        }
        self.count += 1;
        self.whole = Some(Content {
            media_type: blob.media_type,
            data: data.into(),
        });
        Ok(())
    }

    /// Bytes of lines since the last call.
    pub(super) fn carried(&mut self) -> usize {
        std::mem::take(&mut self.carried)
    }

    /// Takes the completed blob.
    pub(super) fn take(&mut self) -> Option<Content> {
        self.whole.take()
    }

    /// Checks that there were as many blobs as the last line says.
    pub(super) fn finish(&self, said: u64) -> Result<(), Error> {
        if self.is_open() {
            return Err(Error::invalid("", "a blob before this line is incomplete"));
        }
        if said != self.count {
            return Err(Error::invalid(
                "/blobs",
                format!("there are {}", self.count),
            ));
        }
        Ok(())
    }
}
