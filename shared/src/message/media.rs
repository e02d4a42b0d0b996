//! Images and files in messages.

use std::ops::Not;

use serde::{Deserialize, Serialize};

use super::ContentPart;
use crate::blob::{BlobHash, BlobRef};

/// Maximum size of an image in bytes. A larger one than providers accept is scaled down before it is shown.
pub const IMAGE_BYTES_MAX: usize = 5 << 20;

/// Maximum size of an image in bytes that every provider accepts: 5 MiB as Base64, which has four characters for three
/// bytes.
pub const IMAGE_SHOWN_BYTES_MAX: usize = (5 << 20) / 4 * 3;

/// Maximum size of a file in bytes.
pub const FILE_BYTES_MAX: usize = 10 << 20;

/// Image types that every provider reads.
const IMAGE_TYPES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/webp"];

/// Maximum length of a URL, in bytes.
const URL_BYTES_MAX: usize = 2_048;

/// Maximum length of a file's name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Where a picture is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ImageSource {
    /// Here.
    Base64 {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        media_type: String,
        /// Its bytes in base64, at most 5 MiB before encoding.
        data: String,
    },
    /// A stored blob, read when the model is called.
    Blob {
        /// The SHA-256 of its bytes.
        #[schema(value_type = String)]
        sha256: BlobHash,
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        media_type: String,
        /// Its bytes, at most 5 MiB.
        bytes: u64,
    },
    /// Where the provider fetches it.
    Url {
        /// An `https` address.
        url: String,
    },
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FileSource {
    /// Words.
    Text {
        /// The text, at most 10 MiB.
        text: String,
    },
    /// Bytes, which not every provider accepts: both accept `application/pdf`.
    Base64 {
        /// Like `application/pdf`.
        media_type: String,
        /// Its bytes in base64, at most 10 MiB before encoding.
        data: String,
    },
    /// A stored blob, read when the model is called.
    Blob {
        /// The SHA-256 of its bytes.
        #[schema(value_type = String)]
        sha256: BlobHash,
        /// Like `application/pdf`; content of a type `text/…` is shown as text.
        media_type: String,
        /// Its bytes, at most 10 MiB.
        bytes: u64,
    },
}

/// Approximate size in bytes of a part that only refers to its content.
const BLOB_WEIGHT: usize = 100;

/// What is wrong with an image or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaFault {
    /// The member of the part, as a JSON pointer.
    pub pointer: &'static str,
    /// What is wrong with it.
    pub detail: String,
}

impl ContentPart {
    /// What is wrong with an image or a file; other parts are never wrong.
    pub fn media_fault(&self) -> Option<MediaFault> {
        match self {
            Self::Text { .. }
            | Self::Reasoning { .. }
            | Self::Digest { .. }
            | Self::Attached(_) => None,
            Self::Image { source } => image_fault(source),
            Self::File { name, source } => name_fault(name).or_else(|| file_fault(source)),
        }
    }

    /// The blob that it refers to.
    pub fn blob(&self) -> Option<BlobHash> {
        match self {
            Self::Image {
                source: ImageSource::Blob { sha256, .. },
            }
            | Self::File {
                source: FileSource::Blob { sha256, .. },
                ..
            } => Some(*sha256),
            Self::Text { .. }
            | Self::Reasoning { .. }
            | Self::Image { .. }
            | Self::File { .. }
            | Self::Digest { .. }
            | Self::Attached(_) => None,
        }
    }

    /// The media type and the base64 of inline content.
    pub fn inline(&self) -> Option<(&str, &str)> {
        match self {
            Self::Image {
                source: ImageSource::Base64 { media_type, data },
            }
            | Self::File {
                source: FileSource::Base64 { media_type, data },
                ..
            } => Some((media_type, data)),
            Self::Text { .. }
            | Self::Reasoning { .. }
            | Self::Image { .. }
            | Self::File { .. }
            | Self::Digest { .. }
            | Self::Attached(_) => None,
        }
    }

    /// The same image or file, referring to a blob instead of containing the bytes. Other parts are unchanged.
    #[must_use]
    pub fn naming(self, blob: BlobRef) -> Self {
        let BlobRef {
            sha256,
            media_type,
            bytes,
        } = blob;
        match self {
            Self::Image { .. } => Self::Image {
                source: ImageSource::Blob {
                    sha256,
                    media_type,
                    bytes,
                },
            },
            Self::File { name, .. } => Self::File {
                name,
                source: FileSource::Blob {
                    sha256,
                    media_type,
                    bytes,
                },
            },
            Self::Text { .. }
            | Self::Reasoning { .. }
            | Self::Digest { .. }
            | Self::Attached(_) => self,
        }
    }

    /// Approximate size of the part in bytes when stored and sent.
    pub fn weight(&self) -> usize {
        match self {
            Self::Text { text } | Self::Digest { text } => text.len(),
            Self::Reasoning {
                text, signature, ..
            } => text.len() + signature.as_deref().map_or(0, str::len),
            Self::Attached(attached) => attached.json.len(),
            Self::Image { source } => match source {
                ImageSource::Base64 { data, .. } => data.len(),
                ImageSource::Blob { media_type, .. } => media_type.len() + BLOB_WEIGHT,
                ImageSource::Url { url } => url.len(),
            },
            Self::File { name, source } => {
                name.len()
                    + match source {
                        FileSource::Text { text } => text.len(),
                        FileSource::Base64 { data, .. } => data.len(),
                        FileSource::Blob { media_type, .. } => media_type.len() + BLOB_WEIGHT,
                    }
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "every check ends with it")]
fn fault(pointer: &'static str, detail: impl Into<String>) -> Option<MediaFault> {
    Some(MediaFault {
        pointer,
        detail: detail.into(),
    })
}

fn image_fault(source: &ImageSource) -> Option<MediaFault> {
    match source {
        ImageSource::Base64 { media_type, data } => {
            if !IMAGE_TYPES.contains(&media_type.as_str()) {
                let detail = format!("must be one of {}", IMAGE_TYPES.join(", "));
                return fault("/source/media_type", detail);
            }
            data_fault(data, IMAGE_BYTES_MAX)
        }
        ImageSource::Blob {
            media_type, bytes, ..
        } => {
            if !IMAGE_TYPES.contains(&media_type.as_str()) {
                let detail = format!("is a blob of another type than {}", IMAGE_TYPES.join(", "));
                return fault("/source", detail);
            }
            blob_fault(*bytes, IMAGE_BYTES_MAX)
        }
        ImageSource::Url { url } => {
            let plain = |b: u8| b.is_ascii_graphic();
            let host = url.strip_prefix("https://").unwrap_or_default();
            let named = !host.is_empty() && !host.starts_with('/');
            (named && url.len() <= URL_BYTES_MAX && url.bytes().all(plain))
                .not()
                .then(|| fault("/source/url", "must be an https address"))
                .flatten()
        }
    }
}

fn name_fault(name: &str) -> Option<MediaFault> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
    if fits {
        return None;
    }
    let detail = format!("must have 1 to {NAME_BYTES_MAX} bytes without control characters");
    fault("/name", detail)
}

fn file_fault(source: &FileSource) -> Option<MediaFault> {
    match source {
        FileSource::Text { text } if text.contains('\0') => {
            fault("/source/text", "must not contain U+0000")
        }
        FileSource::Text { text } if text.len() > FILE_BYTES_MAX => {
            fault("/source/text", "must not have more than 10 MiB")
        }
        FileSource::Text { .. } => None,
        FileSource::Blob {
            media_type, bytes, ..
        } => {
            if !is_media_type(media_type) {
                return fault("/source/media_type", "must be like application/pdf");
            }
            blob_fault(*bytes, FILE_BYTES_MAX)
        }
        FileSource::Base64 { media_type, data } => {
            if !is_media_type(media_type) {
                return fault("/source/media_type", "must be like application/pdf");
            }
            data_fault(data, FILE_BYTES_MAX)
        }
    }
}

/// Whether it is a media type like `application/pdf`, without parameters.
pub fn is_media_type(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/.+-".contains(&b);
    let parts = text.split('/').filter(|part| !part.is_empty());
    parts.count() == 2 && text.len() <= 100 && text.bytes().all(plain)
}

fn blob_fault(bytes: u64, bytes_max: usize) -> Option<MediaFault> {
    if bytes > bytes_max as u64 {
        let detail = format!("must not have more than {} MiB", bytes_max >> 20);
        return fault("/source", detail);
    }
    None
}

fn data_fault(data: &str, bytes_max: usize) -> Option<MediaFault> {
    if !is_base64(data) {
        return fault("/source/data", "must be base64 with its padding");
    }
    if data.len() / 4 * 3 > bytes_max + 2 {
        let detail = format!("must not have more than {} MiB", bytes_max >> 20);
        return fault("/source/data", detail);
    }
    None
}

/// Whether it is base64 of at least one byte, in one line.
fn is_base64(data: &str) -> bool {
    let body = data.trim_end_matches('=');
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    !body.is_empty()
        && data.len().is_multiple_of(4)
        && data.len() - body.len() <= 2
        && body.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(media_type: &str, data: &str) -> ContentPart {
        ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: media_type.to_owned(),
                data: data.to_owned(),
            },
        }
    }

    fn at(url: &str) -> ContentPart {
        let url = url.to_owned();
        ContentPart::Image {
            source: ImageSource::Url { url },
        }
    }

    fn file(name: &str, source: FileSource) -> ContentPart {
        ContentPart::File {
            name: name.to_owned(),
            source,
        }
    }

    fn bytes(media_type: &str, data: &str) -> FileSource {
        FileSource::Base64 {
            media_type: media_type.to_owned(),
            data: data.to_owned(),
        }
    }

    fn text(text: &str) -> FileSource {
        FileSource::Text {
            text: text.to_owned(),
        }
    }

    #[test]
    fn sound_parts_have_no_fault() {
        for part in [
            image("image/png", "iVBORw0KGgo="),
            image("image/webp", "AA=="),
            at("https://a.example/b.png?c=d"),
            file("notes.txt", text("")),
            file("Bericht \u{e9}.pdf", bytes("application/pdf", "AAAA")),
            file("a", bytes("application/vnd.ms-excel", "AAAA")),
        ] {
            assert_eq!(part.media_fault(), None, "{part:?}");
        }
    }

    #[test]
    fn every_fault_is_pointed_at() {
        let long = "A".repeat((IMAGE_BYTES_MAX / 3 + 2) * 4);
        for (part, pointer) in [
            (image("image/svg+xml", "AAAA"), "/source/media_type"),
            (image("image/png", ""), "/source/data"),
            (image("image/png", "===="), "/source/data"),
            (image("image/png", "AAA"), "/source/data"),
            (image("image/png", "A==="), "/source/data"),
            (image("image/png", "AA\nA"), "/source/data"),
            (image("image/png", "AA=A"), "/source/data"),
            (image("image/png", &long), "/source/data"),
            (at("http://a.example/b"), "/source/url"),
            (at("https://"), "/source/url"),
            (at("https:///b"), "/source/url"),
            (at("https://a.example/b c"), "/source/url"),
            (at("data:image/png;base64,AAAA"), "/source/url"),
            (file("", text("x")), "/name"),
            (file("a\nb", text("x")), "/name"),
            (file("a", text("x\0")), "/source/text"),
            (file("a", bytes("pdf", "AAAA")), "/source/media_type"),
            (file("a", bytes("a/b/c", "AAAA")), "/source/media_type"),
            (file("a", bytes("a/b", "?")), "/source/data"),
        ] {
            let fault = part.media_fault();
            let fault = fault.unwrap_or_else(|| panic!("{pointer}: {part:.200?}"));
            assert_eq!(fault.pointer, pointer);
        }
    }

    #[test]
    fn parts_read_as_they_are_written() {
        for (part, json) in [
            (
                image("image/png", "AAAA"),
                r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#,
            ),
            (
                at("https://a.example"),
                r#"{"type":"image","source":{"type":"url","url":"https://a.example"}}"#,
            ),
            (
                file("a.txt", text("x")),
                r#"{"type":"file","name":"a.txt","source":{"type":"text","text":"x"}}"#,
            ),
            (
                image("image/png", "AAAA").naming(BlobRef {
                    sha256: BlobHash([0xab; 32]),
                    media_type: "image/png".to_owned(),
                    bytes: 3,
                }),
                concat!(
                    r#"{"type":"image","source":{"type":"blob","sha256":"#,
                    r#""abababababababababababababababababababababababababababababababab","#,
                    r#""media_type":"image/png","bytes":3}}"#
                ),
            ),
        ] {
            assert_eq!(serde_json::to_string(&part).expect("is JSON"), json);
            assert_eq!(
                serde_json::from_str::<ContentPart>(json).expect("reads"),
                part
            );
        }
    }
}
