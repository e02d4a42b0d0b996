//! The input of a message: a text, or parts of text, pictures and files.

use std::fmt;

use mainspring_shared::blob::BlobHash;
use mainspring_shared::message::{ContentPart, FileSource, ImageSource};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The user's message.
#[derive(Debug)]
pub(super) struct Input(pub(super) Vec<ContentPart>);

pub(super) fn input_schema() -> utoipa::openapi::schema::Schema {
    use utoipa::openapi::Ref;
    use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};

    let text = ObjectBuilder::new().schema_type(Type::String);
    let text = text.min_length(Some(1)).build();
    let part = Ref::from_schema_name("InputPart");
    let list = ArrayBuilder::new().items(part).min_items(Some(1)).build();
    Schema::OneOf(OneOfBuilder::new().item(text).item(list).build())
}

/// A part as a caller writes it. Each member is parsed separately, so that a fault can be located.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartBody {
    r#type: Kind,
    text: Option<String>,
    name: Option<String>,
    source: Option<SourceBody>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Text,
    Image,
    File,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceBody {
    r#type: SourceKind,
    sha256: Option<BlobHash>,
    /// As responses show it. Ignored: the blob's own size counts.
    bytes: Option<u64>,
    media_type: Option<String>,
    data: Option<String>,
    url: Option<String>,
    text: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SourceKind {
    Base64,
    Blob,
    Url,
    Text,
}

impl PartBody {
    fn part(self) -> Result<ContentPart, &'static str> {
        match (self.r#type, self.text, self.name, self.source) {
            (Kind::Text, Some(text), None, None) => Ok(ContentPart::Text { text }),
            (Kind::Text, ..) => Err("a text part has only `text`"),
            (Kind::Image, None, None, Some(source)) => {
                let source = source.image()?;
                Ok(ContentPart::Image { source })
            }
            (Kind::Image, ..) => Err("an image part has only `source`"),
            (Kind::File, None, Some(name), Some(source)) => {
                let source = source.file()?;
                Ok(ContentPart::File { name, source })
            }
            (Kind::File, ..) => Err("a file part has only `name` and `source`"),
        }
    }
}

impl SourceBody {
    fn image(self) -> Result<ImageSource, &'static str> {
        if let Some((sha256, media_type)) = self.blob()? {
            let bytes = 0;
            return Ok(ImageSource::Blob {
                sha256,
                media_type,
                bytes,
            });
        }
        match (self.r#type, self.media_type, self.data, self.url, self.text) {
            (SourceKind::Base64, Some(media_type), Some(data), None, None) => {
                Ok(ImageSource::Base64 { media_type, data })
            }
            (SourceKind::Url, None, None, Some(url), None) => Ok(ImageSource::Url { url }),
            _ => Err(
                "the source of an image is `base64` with `media_type` and `data`, `blob` with \
                 `sha256`, or `url` with `url`",
            ),
        }
    }

    /// The blob, with its media type if that should differ from the stored one. The rest is known
    /// once the blob is looked up.
    fn blob(&self) -> Result<Option<(BlobHash, String)>, &'static str> {
        let others = [&self.data, &self.url, &self.text];
        let others = others.into_iter().any(Option::is_some);
        match (self.r#type, self.sha256) {
            (SourceKind::Blob, Some(sha256)) if !others => {
                Ok(Some((sha256, self.media_type.clone().unwrap_or_default())))
            }
            (SourceKind::Blob, _) | (_, Some(_)) => {
                Err("a source of the type `blob` has a `sha256` and, if need be, a `media_type`")
            }
            (_, None) if self.bytes.is_some() => {
                Err("only a source of the type `blob` has `bytes`")
            }
            (_, None) => Ok(None),
        }
    }

    fn file(self) -> Result<FileSource, &'static str> {
        if let Some((sha256, media_type)) = self.blob()? {
            let bytes = 0;
            return Ok(FileSource::Blob {
                sha256,
                media_type,
                bytes,
            });
        }
        match (self.r#type, self.media_type, self.data, self.url, self.text) {
            (SourceKind::Base64, Some(media_type), Some(data), None, None) => {
                Ok(FileSource::Base64 { media_type, data })
            }
            (SourceKind::Text, None, None, None, Some(text)) => Ok(FileSource::Text { text }),
            _ => Err(
                "the source of a file is `base64` with `media_type` and `data`, `blob` with \
                 `sha256`, or `text` with `text`",
            ),
        }
    }
}

/// A part, refused where it is wrong.
struct Part(ContentPart);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = PartBody::deserialize(deserializer)?;
        body.part().map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;

        impl<'de> Visitor<'de> for Parts {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Input, E> {
                Ok(Input(vec![ContentPart::text(text)]))
            }

            fn visit_string<E>(self, text: String) -> Result<Input, E> {
                Ok(Input(vec![ContentPart::text(text)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Input, A::Error> {
                let mut parts = Vec::new();
                while let Some(Part(part)) = list.next_element()? {
                    parts.push(part);
                }
                Ok(Input(parts))
            }
        }

        deserializer.deserialize_any(Parts)
    }
}
