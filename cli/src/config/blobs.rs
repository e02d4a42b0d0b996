//! Where blobs are.

use std::path::PathBuf;

use mainspring_runtime::{Choice as _, Key, choice, settings};
use mainspring_shared::blob::{BLOB_BYTES_MAX, SPILL_BYTES};

settings! {
    /// Pictures, files and long outputs, which rows only name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct BlobsConfig {
        /// Where their bytes are.
        store: BlobStore = BlobStore::Database => Key::choice("blobs.store", BlobStore::WORDS);
        /// The folder of the store `file`; `blobs` in the data directory when none.
        dir: Option<PathBuf> => Key::text("blobs.dir");
        /// Bytes that one may have.
        bytes_max: usize = BLOB_BYTES_MAX => Key::integer("blobs.bytes_max", 1_024, 1 << 30);
        /// Bytes of base64, or of an output, that stay in a row.
        spill_bytes: usize = SPILL_BYTES => Key::integer("blobs.spill_bytes", 1_024, 1 << 24);
    }
}

choice! {
    /// Where the bytes of blobs are.
    pub(crate) enum BlobStore {
        /// In the database.
        Database = "database",
        /// In a folder that all processes share.
        File = "file",
    }
}
