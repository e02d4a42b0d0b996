//! Images and files in a request: those that are too old to be shown, and those that the model does
//! not accept, are replaced by lines that describe them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::blob::{absent, file_of_text, is_text};
use crate::message::{ContentPart, FileSource, Message, Role};
use crate::model::Takes;

/// The only file type, besides text and audio, that models read.
const PDF: &str = "application/pdf";

/// Replaces images and files by lines, except for the newest ones.
///
/// Between `keep` and twice as many stay. If `keep` is 0, those after the model's last answer stay,
/// since the model has not seen them yet. A function of the messages alone, so that each request
/// replaces what the previous one did, until another `keep` of them have accumulated.
pub(super) fn fade(messages: &mut [Arc<Message>], keep: usize) {
    let of = |message: &Message| message.content.iter().filter(|part| is_media(part)).count();
    let last = messages.iter().rposition(|it| it.role == Role::Assistant);
    let counted = match keep {
        0 => &messages[..last.unwrap_or(0)],
        _ => &messages[..],
    };
    let count: usize = counted.iter().map(|message| of(message)).sum();
    let mut gone = match keep {
        0 => count,
        _ => (count.saturating_sub(1) / keep).saturating_sub(1) * keep,
    };
    for message in messages {
        let mine = of(message);
        if gone == 0 {
            return;
        }
        if mine == 0 {
            continue;
        }
        let why = format!("no longer shown; it is in message {}", message.seq);
        let content = message.content.iter().map(|part| {
            if gone > 0 && is_media(part) {
                gone -= 1;
                return absent(part, &why);
            }
            part.clone()
        });
        *message = with(message, content.collect());
    }
}

/// Whether a part is shown as something other than text.
pub(super) fn is_media(part: &ContentPart) -> bool {
    match part {
        ContentPart::Image { .. } => true,
        ContentPart::File { source, .. } => !matches!(source, FileSource::Text { .. }),
        ContentPart::Text { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => false,
    }
}

/// Replaces the parts that the model does not accept, so that the model knows what was there and
/// the provider does not refuse the request.
pub(super) fn readable(messages: &mut [Arc<Message>], takes: Takes, sounds: &[&str]) {
    for message in messages {
        if !message.content.iter().any(is_media) {
            continue;
        }
        let other = |part: &ContentPart| match not_taken(part, takes, sounds) {
            Some(why) => Some(absent(part, why)),
            None => unpacked(part),
        };
        let others: Vec<_> = message.content.iter().map(other).collect();
        if others.iter().all(Option::is_none) {
            continue;
        }
        let content = message.content.iter().zip(others);
        let content = content.map(|(part, other)| other.unwrap_or_else(|| part.clone()));
        *message = with(message, content.collect());
    }
}

/// Why a part is not shown to the model.
fn not_taken(part: &ContentPart, takes: Takes, sounds: &[&str]) -> Option<&'static str> {
    match part {
        ContentPart::Text { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => None,
        ContentPart::Image { .. } => (!takes.image).then_some("this model takes no pictures"),
        ContentPart::File { source, .. } => match source {
            FileSource::Text { .. } => None,
            FileSource::Base64 { media_type, .. } | FileSource::Blob { media_type, .. } => {
                if is_text(media_type) {
                    None
                } else if media_type == PDF {
                    (!takes.pdf).then_some("this model takes no PDF files")
                } else if media_type.starts_with("audio/") {
                    let taken = takes.audio && sounds.contains(&media_type.as_str());
                    (!taken).then_some("this model takes no such sound")
                } else {
                    Some("models take no files of this type")
                }
            }
        },
    }
}

/// A text file that was given as bytes, converted to text: transports do not accept text files as bytes.
fn unpacked(part: &ContentPart) -> Option<ContentPart> {
    let ContentPart::File {
        name,
        source: FileSource::Base64 { media_type, data },
    } = part
    else {
        return None;
    };
    if !is_text(media_type) {
        return None;
    }
    let data = STANDARD.decode(data).ok()?;
    Some(file_of_text(name.clone(), &data))
}

fn with(message: &Message, content: Vec<ContentPart>) -> Arc<Message> {
    Arc::new(Message {
        content,
        ..Message::clone(message)
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::blob::{BlobHash, BlobRef};
    use crate::id::SendId;
    use crate::message::{ImageSource, NewMessage, Role};
    use crate::time::Timestamp;

    const ALL: Takes = Takes {
        image: true,
        pdf: true,
        audio: true,
    };

    const NONE: Takes = Takes {
        image: false,
        pdf: false,
        audio: false,
    };

    fn file(name: &str, media_type: &str, data: &str) -> ContentPart {
        ContentPart::File {
            name: name.to_owned(),
            source: FileSource::Base64 {
                media_type: media_type.to_owned(),
                data: data.to_owned(),
            },
        }
    }

    fn image() -> ContentPart {
        ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: "image/png".to_owned(),
                data: "AAAA".to_owned(),
            },
        }
    }

    /// The parts as such a model reads them.
    fn read(parts: Vec<ContentPart>, takes: Takes, sounds: &[&str]) -> Vec<ContentPart> {
        let message = NewMessage {
            role: Role::Tool,
            ..NewMessage::user(parts, 0)
        };
        let message = message.at(3, SendId(Uuid::nil()), Timestamp(0), 0);
        let mut messages = vec![Arc::new(message)];
        readable(&mut messages, takes, sounds);
        messages[0].content.clone()
    }

    fn words(part: &ContentPart) -> &str {
        match part {
            ContentPart::Text { text } => text,
            ContentPart::Reasoning { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_)
            | ContentPart::Image { .. }
            | ContentPart::File { .. } => panic!("{part:?}"),
        }
    }

    #[test]
    fn what_a_model_does_not_take_is_said_to_be_there() {
        let url = "https://a.example/b.png".to_owned();
        let at = ContentPart::Image {
            source: ImageSource::Url { url },
        };
        let blob = BlobRef {
            sha256: BlobHash([0; 32]),
            media_type: "audio/mpeg".to_owned(),
            bytes: 4_096,
        };
        let zeros = "0".repeat(64);
        let cases = [
            (
                image(),
                "[image, image/png, 3 bytes: this model takes no pictures]",
            ),
            (
                at,
                "[image: this model takes no pictures; https://a.example/b.png]",
            ),
            (
                file("a.pdf", "application/pdf", "AAAA"),
                "[file a.pdf, application/pdf, 3 bytes: this model takes no PDF files]",
            ),
            (
                file("a.mp3", "", "").naming(blob),
                &format!(
                    "[file a.mp3, audio/mpeg, 4 KiB: this model takes no such sound; sha256 {zeros}]"
                ),
            ),
        ];
        for (part, expected) in cases {
            let shown = read(vec![part.clone()], NONE, &["audio/mpeg"]);
            assert_eq!(words(&shown[0]), expected);
            assert_eq!(read(vec![part.clone()], ALL, &["audio/mpeg"]), [part]);
        }
    }

    #[test]
    fn what_no_transport_has_a_form_for_is_said_to_be_there() {
        let sound = file("a.ogg", "audio/ogg", "AAAA");
        let expected = "[file a.ogg, audio/ogg, 3 bytes: this model takes no such sound]";
        assert_eq!(words(&read(vec![sound], ALL, &["audio/mpeg"])[0]), expected);
        let archive = file("a.zip", "application/zip", "AAAA");
        let expected = "[file a.zip, application/zip, 3 bytes: models take no files of this type]";
        assert_eq!(words(&read(vec![archive], ALL, &[])[0]), expected);
    }

    #[test]
    fn words_are_words_however_they_came() {
        let text = file("a.md", "text/markdown", "aGVsbG//AA==");
        let shown = read(vec![text], NONE, &[]);
        let expected = ContentPart::File {
            name: "a.md".to_owned(),
            source: FileSource::Text {
                text: "hello\u{fffd}\u{fffd}".to_owned(),
            },
        };
        assert_eq!(shown, [expected]);
    }
}
