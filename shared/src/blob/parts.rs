//! Moves images and files of messages out of rows into blobs, and back into requests.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::{BlobHash, BlobOwner, BlobRef, Depot, Error};
use crate::id::TenantId;
use crate::message::{ContentPart, FileSource, ImageSource};
use crate::store::BlobRecord;

impl Depot {
    /// Stores images and files with more than [`spill_bytes`](Depot::spill_bytes) of base64 as
    /// blobs, and refers to them instead. If this fails, the remaining parts are unchanged.
    pub async fn spill(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        parts: &mut [ContentPart],
    ) -> Result<(), Error> {
        for part in parts {
            let Some((blob, data)) = self.large(part) else {
                continue;
            };
            self.put(tenant, Some(owner), &blob.media_type, data.into())
                .await?;
            name(part, blob);
        }
        Ok(())
    }

    /// Replaces images and files by references as [`spill`](Depot::spill) would, but stores
    /// nothing. Returns their content in base64, for [`unstored`].
    pub fn foresee_spill(&self, parts: &mut [ContentPart]) -> Vec<String> {
        let mut content = Vec::new();
        for part in parts {
            if let Some((blob, data)) = self.large(part) {
                content.push(STANDARD.encode(data));
                name(part, blob);
            }
        }
        content
    }

    /// The reference to an image or file once it is stored, and its content; `None` if it stays in
    /// its row.
    fn large(&self, part: &ContentPart) -> Option<(BlobRef, Vec<u8>)> {
        let (media_type, data) = part.inline()?;
        if data.len() <= self.spill_bytes() {
            return None;
        }
        // Invalid base64 is left in place, to be reported elsewhere.
        let data = STANDARD.decode(data).ok()?;
        if data.len() > self.bytes_max() {
            return None;
        }
        let blob = BlobRef {
            sha256: BlobHash::of(&data),
            media_type: media_type.to_owned(),
            bytes: data.len() as u64,
        };
        Some((blob, data))
    }

    /// Holds the blobs that parts refer to for their owner, and completes the parts' information
    /// about them. Returns the indexes of parts whose blobs do not exist.
    pub async fn settle(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        parts: &mut [ContentPart],
    ) -> Result<Vec<usize>, Error> {
        let (places, hashes) = named(parts);
        let found = self.hold(tenant, owner, hashes).await?;
        Ok(complete(parts, places, found))
    }

    /// Like [`settle`](Self::settle), for parts that are not sent: nothing is held.
    pub async fn look_up(
        &self,
        tenant: TenantId,
        parts: &mut [ContentPart],
    ) -> Result<Vec<usize>, Error> {
        let (places, hashes) = named(parts);
        let found = self.rows.get_blobs(tenant, hashes).await?;
        Ok(complete(parts, places, found))
    }
}

/// Content that is not stored, by the hash that parts refer to.
pub type Unstored = BTreeMap<BlobHash, Bytes>;

/// Decodes the content returned by [`Depot::foresee_spill`].
pub fn unstored(content: &[String]) -> Unstored {
    let decoded = content.iter().filter_map(|data| STANDARD.decode(data).ok());
    let named = decoded.map(|data| (BlobHash::of(&data), Bytes::from(data)));
    named.collect()
}

/// Replaces a part's content by a reference to a blob.
fn name(part: &mut ContentPart, blob: BlobRef) {
    let inline = std::mem::replace(part, ContentPart::text(""));
    *part = inline.naming(blob);
}

/// The indexes of parts that refer to blobs, and the hashes.
fn named(parts: &[ContentPart]) -> (Vec<usize>, Vec<BlobHash>) {
    let named = parts.iter().enumerate();
    let named = named.filter_map(|(place, part)| Some((place, part.blob()?)));
    named.unzip()
}

/// Completes the parts at these indexes from the blobs' records. Returns the indexes of parts whose
/// blobs do not exist.
fn complete(
    parts: &mut [ContentPart],
    places: Vec<usize>,
    found: Vec<Option<BlobRecord>>,
) -> Vec<usize> {
    let mut unknown = Vec::new();
    for (place, found) in places.into_iter().zip(found) {
        let Some(record) = found else {
            unknown.push(place);
            continue;
        };
        if let ContentPart::Image {
            source: ImageSource::Blob {
                media_type, bytes, ..
            },
        }
        | ContentPart::File {
            source: FileSource::Blob {
                media_type, bytes, ..
            },
            ..
        } = &mut parts[place]
        {
            *bytes = record.bytes;
            if media_type.is_empty() {
                media_type.clone_from(&record.media_type);
            }
        }
    }
    unknown
}

/// A part with the content of its blob, as shown to a model. Other parts are unchanged.
pub fn filled(part: &ContentPart, data: &[u8]) -> ContentPart {
    match part {
        ContentPart::Image {
            source: ImageSource::Blob { media_type, .. },
        } => ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: media_type.clone(),
                data: STANDARD.encode(data),
            },
        },
        ContentPart::File {
            name,
            source: FileSource::Blob { media_type, .. },
        } => {
            let name = name.clone();
            if is_text(media_type) {
                return file_of_text(name, data);
            }
            let source = FileSource::Base64 {
                media_type: media_type.clone(),
                data: STANDARD.encode(data),
            };
            ContentPart::File { name, source }
        }
        ContentPart::Text { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_)
        | ContentPart::Image { .. }
        | ContentPart::File { .. } => part.clone(),
    }
}

/// Whether files of this type are shown as text.
pub fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/")
}

/// A text file. Invalid UTF-8 and U+0000 are replaced by U+FFFD, so that the rest is readable.
pub fn file_of_text(name: String, data: &[u8]) -> ContentPart {
    let text = String::from_utf8_lossy(data).replace('\0', "\u{fffd}");
    ContentPart::File {
        name,
        source: FileSource::Text { text },
    }
}

/// A text in place of an image or a file: what it is, why it is not shown, and how to find it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other kind is asked for its inline data"
)]
pub fn absent(part: &ContentPart, why: &str) -> ContentPart {
    let (kind, name) = match part {
        ContentPart::Image { .. } => ("image", None),
        ContentPart::File { name, .. } => ("file", Some(name.as_str())),
        ContentPart::Text { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => {
            return part.clone();
        }
    };
    let mut text = format!("[{kind}");
    if let Some(name) = name {
        text.push(' ');
        text.push_str(name);
    }
    let (media_type, bytes) = match part {
        ContentPart::Image {
            source: ImageSource::Blob {
                media_type, bytes, ..
            },
        }
        | ContentPart::File {
            source: FileSource::Blob {
                media_type, bytes, ..
            },
            ..
        } => (Some(media_type.as_str()), Some(*bytes)),
        _ => match part.inline() {
            Some((media_type, data)) => (Some(media_type), Some(data.len() as u64 / 4 * 3)),
            None => (None, None),
        },
    };
    if let Some(media_type) = media_type {
        text.push_str(", ");
        text.push_str(media_type);
    }
    if let Some(bytes) = bytes {
        text.push_str(", ");
        text.push_str(&size(bytes));
    }
    text.push_str(": ");
    text.push_str(why);
    if let Some(sha256) = part.blob() {
        text.push_str("; sha256 ");
        text.push_str(&sha256.to_string());
    }
    if let ContentPart::Image {
        source: ImageSource::Url { url },
    } = part
    {
        text.push_str("; ");
        text.push_str(url);
    }
    text.push(']');
    ContentPart::text(text)
}

/// A length for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes.div_ceil(1_024)),
        _ => format!("{} MiB", bytes.div_ceil(1_048_576)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "any other kind fails the test"
    )]
    fn what_is_not_shown_is_said_to_be_missing() {
        let source = ImageSource::Base64 {
            media_type: "image/png".to_owned(),
            data: "A".repeat(4_096),
        };
        let image = ContentPart::Image { source };
        let words = |part: &ContentPart| match absent(part, "x") {
            ContentPart::Text { text } => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(words(&image), "[image, image/png, 3 KiB: x]");
        let blob = BlobRef {
            sha256: BlobHash([0; 32]),
            media_type: "application/pdf".to_owned(),
            bytes: 3 << 20,
        };
        let file = ContentPart::File {
            name: "a.pdf".to_owned(),
            source: FileSource::Text {
                text: String::new(),
            },
        };
        let zeros = "0".repeat(64);
        assert_eq!(
            words(&file.naming(blob)),
            format!("[file a.pdf, application/pdf, 3 MiB: x; sha256 {zeros}]")
        );
        let url = "https://a.example/b.png".to_owned();
        let source = ImageSource::Url { url };
        let at = ContentPart::Image { source };
        assert_eq!(words(&at), "[image: x; https://a.example/b.png]");
    }
}
