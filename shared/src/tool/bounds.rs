//! Bounds of outputs: the model sees head and tail, the whole is kept.

use super::call::CallResult;
use crate::blob::BlobHash;
use crate::message::{ContentPart, plain_text, texts};

/// Characters of an output that are kept at all.
const WHOLE_CHARS_MAX: usize = 2_000_000;

/// Bytes of pictures and files that a result keeps.
const MEDIA_BYTES_MAX: usize = 12 << 20;

/// The result with its text within `chars_max` characters, and the whole beside it where it was
/// cut. Free of U+0000, which no database stores.
pub fn bounded(mut result: CallResult, call_id: &str, chars_max: usize) -> CallResult {
    for part in &mut result.content {
        if let ContentPart::Text { text } = part
            && text.contains('\0')
        {
            *text = text.replace('\0', "\u{fffd}");
        }
    }
    let mut left = MEDIA_BYTES_MAX;
    for part in &mut result.content {
        if matches!(part, ContentPart::Image { .. } | ContentPart::File { .. }) {
            let fault = part.media_fault().map(|fault| fault.detail);
            let weight = part.weight();
            match fault {
                None if weight <= left => left -= weight,
                None => *part = ContentPart::text("[a picture or file too many, left out]"),
                Some(fault) => *part = ContentPart::text(format!("[left out: it {fault}]")),
            }
        }
    }
    let text = plain_text(&result.content);
    let chars = text.chars().count();
    if chars <= chars_max {
        return result;
    }
    let (head, tail) = (chars_max / 2, chars_max - chars_max / 2);
    let note = format!(
        "\n[… {} of the {chars} {} …]\n",
        chars - chars_max,
        cut_of(call_id)
    );
    let shown = format!("{}{note}{}", first(&text, head), last(&text, tail, chars));
    let others = std::mem::take(&mut result.content);
    let others = others
        .into_iter()
        .filter(|part| !matches!(part, ContentPart::Text { .. }));
    result.content = std::iter::once(ContentPart::text(shown))
        .chain(others)
        .collect();
    result.whole = Some(first(&text, WHOLE_CHARS_MAX).to_owned());
    result
}

/// What the note in a cut output says behind the call's id.
fn cut_of(call_id: &str) -> String {
    format!("characters of {call_id} left out")
}

/// Says in the note of a cut output under which hash the whole is kept: whoever has a copy of the message
/// finds it by that.
pub fn name_whole(content: &mut [ContentPart], call_id: &str, sha256: BlobHash) {
    let note = cut_of(call_id);
    for part in content {
        if let ContentPart::Text { text } = part
            && let Some(at) = text.find(&note)
        {
            text.insert_str(at + note.len(), &format!("; sha256 {sha256}"));
            return;
        }
    }
}

/// The hash that the note of a cut output names.
pub fn named_whole(content: &[ContentPart], call_id: &str) -> Option<BlobHash> {
    let note = format!("{}; sha256 ", cut_of(call_id));
    texts(content).find_map(|text| {
        let (_, behind) = text.split_once(&note)?;
        behind.get(..64)?.parse().ok()
    })
}

fn first(text: &str, chars: usize) -> &str {
    let end = text.char_indices().nth(chars).map(|(at, _)| at);
    &text[..end.unwrap_or(text.len())]
}

fn last(text: &str, chars: usize, of: usize) -> &str {
    let start = text.char_indices().nth(of.saturating_sub(chars));
    &text[start.map_or(text.len(), |(at, _)| at)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_head_and_tail_and_the_whole_beside() {
        let long = format!("{}{}", "é".repeat(60), "z".repeat(60));
        let cut = bounded(CallResult::text(long.clone()), "call_1", 20);
        let shown = plain_text(&cut.content);
        assert!(shown.starts_with(&"é".repeat(10)) && shown.ends_with(&"z".repeat(10)));
        assert!(
            shown.contains("100 of the 120 characters of call_1 left out"),
            "{shown}"
        );
        assert_eq!(cut.whole_text(), long);
        // Where it is a blob, its name is found in every copy of the message.
        let (mut content, hash) = (cut.content, BlobHash::of(long.as_bytes()));
        assert_eq!(named_whole(&content, "call_1"), None);
        name_whole(&mut content, "call_1", hash);
        assert_eq!(named_whole(&content, "call_1"), Some(hash));
        assert_eq!(named_whole(&content, "call_2"), None);
        let said = format!("characters of call_1 left out; sha256 {hash} …]");
        assert!(plain_text(&content).contains(&said));
    }

    #[test]
    fn pictures_are_kept_as_they_are_and_only_so_many_of_them() {
        use crate::message::ImageSource;
        let image = |media_type: &str, bytes: usize| ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: media_type.to_owned(),
                data: "A".repeat(bytes / 3 * 4),
            },
        };
        let large = image("image/png", 5 << 20);
        let content = vec![
            image("image/tiff", 3),
            large.clone(),
            ContentPart::text("x".repeat(50)),
            large.clone(),
        ];
        let result = CallResult {
            content,
            ..CallResult::text("")
        };
        let kept = bounded(result, "call_1", 20);
        let pictures = kept.content.iter().filter(|part| **part == large);
        assert_eq!(pictures.count(), 1);
        let whole = kept.whole_text();
        assert!(whole.contains("must be one of image/gif"), "{whole}");
        assert!(whole.contains("too many"), "{whole}");
    }

    #[test]
    fn a_short_output_stays_as_it_is_but_for_nul() {
        let kept = bounded(CallResult::text("a\0b"), "call_1", 20);
        assert_eq!(kept, CallResult::text("a\u{fffd}b"));
    }
}
