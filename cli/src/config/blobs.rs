//! Where blobs are stored.

use std::path::PathBuf;
use std::time::Duration;

use mainspring_blob_stores::S3Settings;
use mainspring_runtime::{Choice as _, Key, Secret, choice, settings};
use mainspring_shared::blob::{BLOB_BYTES_MAX, SPILL_BYTES};

use super::{HOUR, HTTP, MS};

settings! {
    /// Pictures, files and long outputs, which rows only name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct BlobsConfig {
        /// Where their bytes are.
        store: BlobStore = BlobStore::Database => Key::choice("blobs.store", BlobStore::WORDS);
        /// The folder of the store `file`; `blobs` in the data directory when none.
        dir: Option<PathBuf> => Key::text("blobs.dir");
        /// The bucket of the store `s3`.
        bucket: Option<String> => Key::text("blobs.bucket");
        /// What the names of all objects in it begin with.
        prefix: Option<String> => Key::text("blobs.prefix");
        /// The bucket's region; `AWS_REGION`, else us-east-1, when none.
        region: Option<String> => Key::text("blobs.region");
        /// Where a store is that speaks S3; Amazon when none.
        endpoint: Option<String> => Key::url("blobs.endpoint", HTTP);
        /// The id of a key for it. Without one, what the environment or the machine has for AWS is used.
        access_key_id: Option<Secret> => Key::secret("blobs.access_key_id");
        /// The secret of that key.
        secret_access_key: Option<Secret> => Key::secret("blobs.secret_access_key");
        /// How long it may take to store or read one, where that is not the database.
        timeout: Duration = Duration::from_secs(30) => Key::span("blobs.timeout", MS, HOUR);
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
        /// In a bucket of a store that speaks S3.
        S3 = "s3",
    }
}

impl BlobsConfig {
    /// Settings of the bucket; `None` if it has no name.
    pub(crate) fn s3(&self) -> Option<S3Settings> {
        let shown = |secret: &Option<Secret>| secret.as_ref().map(|it| it.reveal().to_owned());
        Some(S3Settings {
            bucket: self.bucket.clone()?,
            prefix: self.prefix.clone().unwrap_or_default(),
            region: self.region.clone(),
            endpoint: self.endpoint.clone(),
            access_key_id: shown(&self.access_key_id),
            secret_access_key: shown(&self.secret_access_key),
            timeout: self.timeout,
        })
    }

    /// The setting that the store `s3` lacks.
    pub(super) fn missing(&self) -> Option<(&'static str, &'static str)> {
        if self.store != BlobStore::S3 {
            return None;
        }
        let none = |secret: &Option<Secret>| secret.is_none();
        if self.bucket.is_none() {
            Some(("blobs.bucket", "the store s3 needs a bucket"))
        } else if none(&self.access_key_id) != none(&self.secret_access_key) {
            let detail = "blobs.access_key_id and blobs.secret_access_key belong together: set \
                          both, or neither to use the AWS credentials of the environment or the \
                          machine";
            Some(("blobs.access_key_id", detail))
        } else {
            None
        }
    }
}
