#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod file;
mod s3;

use bytes::Bytes;
use mainspring_shared::blob::{BlobHash, BlobPlace, Blobs, Error};
use mainspring_shared::id::TenantId;
use uuid::Uuid;

pub use file::FileBlobs;
pub use s3::{S3Blobs, S3Settings};

/// Writes, reads and deletes a few bytes under a unique name.
async fn write_read_delete(blobs: &dyn Blobs) -> Result<(), Error> {
    let data = Bytes::from_static(b"check");
    let place = BlobPlace {
        tenant: TenantId(0),
        sha256: BlobHash::of(&data),
        generation: own_name(),
    };
    blobs.put(place, data.clone()).await?;
    let found = blobs.get(place, None).await?;
    blobs.delete(place).await?;
    if found.as_ref() == Some(&data) {
        Ok(())
    } else {
        Err(Error::unavailable("what was written is not there"))
    }
}

/// A name that no other writer has.
#[expect(
    clippy::disallowed_methods,
    reason = "it decides nothing, and no test repeats it"
)]
fn own_name() -> Uuid {
    Uuid::new_v4()
}
