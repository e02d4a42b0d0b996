//! Size limits of outputs: the model sees the head and the tail, the whole output is stored.

use super::call::CallResult;
use crate::blob::BlobHash;
use crate::message::{ContentPart, digest_of, plain_text, texts};

/// Maximum number of characters of an output that are stored.
const WHOLE_CHARS_MAX: usize = 2_000_000;

/// Maximum bytes of images and files that a result keeps.
const MEDIA_BYTES_MAX: usize = 12 << 20;

/// Maximum bytes of the digest that a tool gives for its result once it is old. Together with the
/// line that says how to read the whole, it is shorter than results that are not shortened.
const DIGEST_BYTES_MAX: usize = 256;

/// A tool's digest of a result in the stored form: one line of bounded length. `None` if it is empty.
pub fn digest_part(said: &str) -> Option<ContentPart> {
    // Look at no more of the text than may be needed, however long it is.
    let said = said.trim_start();
    let mut end = said.len().min(4 * DIGEST_BYTES_MAX);
    while !said.is_char_boundary(end) {
        end -= 1;
    }
    let words = said[..end].replace('\0', "\u{fffd}");
    let mut text = words.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.len() > DIGEST_BYTES_MAX || (end < said.len() && !text.is_empty()) {
        let mut end = text.len().min(DIGEST_BYTES_MAX - '\u{2026}'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('\u{2026}');
    }
    (!text.is_empty()).then_some(ContentPart::Digest { text })
}

/// Moves the first digest of a result after its content, shortened to the limit; drops others.
fn bound_digest(content: &mut Vec<ContentPart>) {
    let Some(said) = digest_of(content) else {
        return;
    };
    let digest = digest_part(said);
    content.retain(ContentPart::is_content);
    content.extend(digest);
}

/// Limits the text of a result to `chars_max` characters, and stores the whole text beside it if it
/// was cut. Removes U+0000, which databases cannot store.
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
                None => {
                    let text = "[too many pictures or files: this one was left out]";
                    *part = ContentPart::text(text);
                }
                Some(fault) => *part = ContentPart::text(format!("[left out: it {fault}]")),
            }
        }
    }
    bound_digest(&mut result.content);
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

/// The note in a cut output, including the call's id.
fn cut_of(call_id: &str) -> String {
    format!("characters of {call_id} left out")
}

/// Adds to the note in a cut output the hash under which the whole is stored, so that it can be
/// found from any copy of the message.
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

/// The hash in the note of a cut output.
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
        // If the whole is a blob, its hash can be found in every copy of the message.
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
    fn a_digest_is_one_bounded_line_behind_the_rest_and_no_text() {
        let digest = |text: &str| ContentPart::Digest { text: text.into() };
        let mut result = CallResult::text("x".repeat(50));
        result.content.insert(0, digest("  read\n a\0b "));
        result.content.push(digest("another"));
        let kept = bounded(result, "call_1", 20);
        assert_eq!(digest_of(&kept.content), Some("read a\u{fffd}b"));
        assert_eq!(kept.content.len(), 2);
        assert!(plain_text(&kept.content).starts_with("xxxxxxxxxx\n["));
        assert_eq!(kept.whole_text(), "x".repeat(50));
        for long in [
            "é".repeat(200),
            "a b ".repeat(10_000),
            format!("a{}b", " ".repeat(9_000)),
        ] {
            let part = digest_part(&long).expect("says something");
            let text = digest_of(std::slice::from_ref(&part)).expect("a digest");
            assert!(
                text.len() <= DIGEST_BYTES_MAX && text.ends_with('\u{2026}'),
                "{text}"
            );
        }
        assert_eq!(
            digest_part(&format!("{}x ", " \n".repeat(9_000))),
            Some(digest("x"))
        );
        assert_eq!(digest_part(" \n "), None);
        let empty = CallResult {
            content: vec![digest(" "), ContentPart::text("a")],
            ..CallResult::text("")
        };
        assert_eq!(bounded(empty, "call_1", 20), CallResult::text("a"));
    }

    #[test]
    fn a_short_output_stays_as_it_is_but_for_nul() {
        let kept = bounded(CallResult::text("a\0b"), "call_1", 20);
        assert_eq!(kept, CallResult::text("a\u{fffd}b"));
    }
}
