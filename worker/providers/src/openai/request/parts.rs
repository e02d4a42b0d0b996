//! The parts of messages in chat completions.

use std::borrow::Cow;

use mainspring_shared::message::{ContentPart, FileSource, ImageSource};
use mainspring_worker::llm::Error;
use serde::Serialize;

use crate::rules::{Pdf, Rules};
use crate::transcript::{PDF, file_text, image_type, not_taken};

/// Serializes text-only content as a string, which servers accept that know of nothing else.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
    },
    ImageUrl {
        image_url: ImageUrl<'a>,
    },
    File {
        file: FileData<'a>,
    },
    DocumentUrl {
        document_url: String,
        document_name: &'a str,
    },
    InputAudio {
        input_audio: Sound<'a>,
    },
    Thinking {
        thinking: [Thought<'a>; 1],
        closed: bool,
    },
}

#[derive(Serialize)]
pub(super) struct Sound<'a> {
    data: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    url: Cow<'a, str>,
}

#[derive(Serialize)]
pub(super) struct FileData<'a> {
    filename: &'a str,
    file_data: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thought<'a> {
    Text { text: &'a str },
}

/// The media types of audio that the protocol supports.
pub(in crate::openai) const SOUNDS: &[&str] =
    &["audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"];

/// The protocol's name for audio of this type.
fn sound(media_type: &str) -> Option<&'static str> {
    match media_type {
        "audio/wav" | "audio/x-wav" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}

/// The content parts that go into a request, in order. What the endpoint doesn't take is described in words: it stays in
/// the session, and would make each later request fail.
pub(super) fn parts<'a>(
    content: impl IntoIterator<Item = &'a ContentPart>,
    rules: &Rules,
) -> Result<Vec<Part<'a>>, Error> {
    let mut parts = Vec::new();
    for part in content {
        parts.push(match part {
            ContentPart::Reasoning { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => continue,
            // Some endpoints refuse them.
            ContentPart::Text { text } if text.trim().is_empty() => continue,
            ContentPart::Text { text } => Part::Text {
                text: Cow::Borrowed(text),
            },
            ContentPart::Image { source } => picture(source, rules)?,
            ContentPart::File { name, source } => file(name, source, rules)?,
        });
    }
    Ok(parts)
}

pub(super) fn text(text: String) -> Part<'static> {
    Part::Text {
        text: Cow::Owned(text),
    }
}

fn picture<'a>(source: &'a ImageSource, rules: &Rules) -> Result<Part<'a>, Error> {
    let url = match source {
        ImageSource::Url { url } if !rules.picture_urls => {
            return Ok(text(format!("[a picture at {url}, which is not shown]")));
        }
        ImageSource::Url { url } => Cow::Borrowed(url.as_str()),
        ImageSource::Blob { media_type, .. } => return Err(not_taken("image", media_type)),
        ImageSource::Base64 { media_type, data } => {
            let kind = image_type(media_type, data);
            if !rules.picture_kinds.iter().any(|it| it == kind) {
                return Ok(text(format!(
                    "[a picture of type {kind}, which is not shown]"
                )));
            }
            if data.len() > rules.picture_bytes_max {
                return Ok(text(
                    "[a picture, which is too large to be shown]".to_owned(),
                ));
            }
            Cow::Owned(format!("data:{kind};base64,{data}"))
        }
    };
    Ok(Part::ImageUrl {
        image_url: ImageUrl { url },
    })
}

fn file<'a>(name: &'a str, source: &'a FileSource, rules: &Rules) -> Result<Part<'a>, Error> {
    Ok(match source {
        FileSource::Text { text: said } => text(file_text(name, said)),
        FileSource::Base64 { media_type, data } if media_type == PDF => {
            let file_data = || format!("data:{media_type};base64,{data}");
            match rules.pdf {
                Pdf::File => Part::File {
                    file: FileData {
                        filename: name,
                        file_data: file_data(),
                    },
                },
                Pdf::DocumentUrl => Part::DocumentUrl {
                    document_url: file_data(),
                    document_name: name,
                },
                Pdf::None => text(format!("[the PDF file {name}, which is not shown]")),
            }
        }
        FileSource::Base64 { media_type, data } => match sound(media_type) {
            Some(format) if rules.audio => Part::InputAudio {
                input_audio: Sound { data, format },
            },
            Some(_) => text(format!("[the recording {name}, which cannot be heard]")),
            None => return Err(not_taken(name, media_type)),
        },
        FileSource::Blob { media_type, .. } => return Err(not_taken(name, media_type)),
    })
}
