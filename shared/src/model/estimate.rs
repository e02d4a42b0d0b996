//! Estimates how many tokens a text has, by its kinds of characters.
//!
//! There are two estimates. `estimate_*` is an upper bound for any tokenizer: budgets use it, and
//! so does usage if a provider does not report it. `expect_*` is what current tokenizers are likely
//! to give: decisions about the context are based on it, corrected by the provider's actual counts
//! ([`Calibration`](super::Calibration)).

use super::{Request, ToolSpec};
use crate::message::{Attached, ContentPart, FileSource, Message, ToolCall};

/// Minimum letters of a word per token: common words are one token whatever their length, names and
/// code are split.
const LETTERS_PER_TOKEN: u64 = 3;

/// Overhead of a message in tokens.
const MESSAGE_TOKENS: u64 = 4;

/// Maximum tokens of an image: providers scale larger ones down.
const IMAGE_TOKENS: u64 = 1_600;

/// Characters of base64 per token of a document: each page is read both as text and as an image.
const DATA_CHARS_PER_TOKEN: u64 = 20;

/// The maximum number of tokens of a text, whatever its script: one per three letters of an ASCII
/// word, and one per byte for everything else, except a space before a word. Tokenizers that do not
/// know a script fall back to its bytes.
pub fn estimate_tokens(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut tokens, mut letters, mut space) = (0_u64, 0_u64, false);
    let (mut at, mut in_word) = (0, false);
    while let Some(byte) = bytes.get(at) {
        let id = if in_word { 0 } else { id_chars(&bytes[at..]) };
        if id > 0 {
            tokens += id as u64 + u64::from(space);
            (at, in_word, space) = (at + id, true, false);
            continue;
        }
        at += 1;
        in_word = byte.is_ascii_alphanumeric();
        if byte.is_ascii_alphabetic() {
            letters += 1;
            // A space belongs to the word after it.
            space = false;
            continue;
        }
        tokens += letters.div_ceil(LETTERS_PER_TOKEN) + u64::from(space);
        letters = 0;
        space = *byte == b' ';
        tokens += u64::from(!space);
    }
    tokens + letters.div_ceil(LETTERS_PER_TOKEN) + u64::from(space)
}

/// Minimum length of a word of hexadecimal digits to be treated as an id or a hash.
const ID_CHARS_MIN: usize = 16;

/// Length of the id or hash at the beginning of a text; 0 if there is none. The estimate of such a
/// word must not depend on its value, so that random ids never decide whether something is folded.
fn id_chars(text: &[u8]) -> usize {
    let is_hex = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let chars = text.iter().take_while(is_hex).count();
    let is_word = text
        .get(chars)
        .is_none_or(|next| !next.is_ascii_alphanumeric());
    if chars >= ID_CHARS_MIN && is_word {
        chars
    } else {
        0
    }
}

/// The kinds of characters that do not share a token.
#[derive(PartialEq, Clone, Copy)]
enum Kind {
    Letter,
    Digit,
    Space,
    Other,
}

impl Kind {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' | 'A'..='Z' => Self::Letter,
            '0'..='9' => Self::Digit,
            c if c.is_whitespace() => Self::Space,
            _ => Self::Other,
        }
    }
}

/// Expected thousandths of a token per character, by script, for a tokenizer with 200 000 words and
/// ordinary texts.
const fn share(c: char) -> u64 {
    match c {
        'a'..='z' | 'A'..='Z' => 225,
        '0'..='9' => 400,
        ' ' => 60,
        // Line breaks and typographic punctuation.
        '\n' | '\t' | '\r' | '\u{2000}'..='\u{206f}' => 700,
        // Punctuation, and Latin letters with diacritics.
        '!'..='~' | '\u{a0}'..='\u{24f}' => 600,
        // Greek, Cyrillic, Armenian, Hebrew, Arabic.
        '\u{370}'..='\u{6ff}' => 320,
        // Indic scripts.
        '\u{900}'..='\u{dff}' => 360,
        // Thai, Lao, Tibetan, Burmese.
        '\u{e00}'..='\u{109f}' => 280,
        // Kana, ideographs, Hangul.
        '\u{3000}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' => 780,
        '\u{ff00}'..='\u{ffef}' => 1_000,
        // Emoji and rare characters: counted by bytes.
        _ => 1_800,
    }
}

/// The share and kind of each ASCII character, for [`expect_tokens_of_ascii`].
const ASCII: [(u64, Kind); 128] = {
    let mut table = [(0, Kind::Other); 128];
    let mut at = 0;
    while at < table.len() {
        let c = at as u8;
        let kind = match c {
            b'a'..=b'z' | b'A'..=b'Z' => Kind::Letter,
            b'0'..=b'9' => Kind::Digit,
            b' ' | b'\t'..=b'\r' => Kind::Space,
            _ => Kind::Other,
        };
        table[at] = (share(c as char), kind);
        at += 1;
    }
    table
};

/// Like [`expect_tokens_of_any`], for ASCII texts: several times as fast, since whole windows are estimated.
fn expect_tokens_of_ascii(text: &[u8]) -> u64 {
    let (mut thousandths, mut before) = (0, Kind::Other);
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let (share, kind) = ASCII[usize::from(*byte & 127)];
        if !matches!(before, Kind::Letter | Kind::Digit)
            && matches!(kind, Kind::Letter | Kind::Digit)
        {
            let id = id_chars(&text[at..]);
            if id > 0 {
                thousandths += id as u64 * ID_SHARE;
                (at, before) = (at + id, Kind::Letter);
                continue;
            }
        }
        thousandths += match (before, kind) {
            (Kind::Space, Kind::Space) => 0,
            (Kind::Letter, Kind::Digit) | (Kind::Digit, Kind::Letter) => share + MIXED,
            (_, _) => share,
        };
        (at, before) = (at + 1, kind);
    }
    u64::div_ceil(thousandths, 1_000)
}

/// Additional thousandths for each change between digits and letters, as in ids: no word mixes them.
const MIXED: u64 = 600;

/// Expected thousandths per character of an id or a hash.
const ID_SHARE: u64 = 850;

/// The expected number of tokens of a text.
pub fn expect_tokens(text: &str) -> u64 {
    if text.is_ascii() {
        expect_tokens_of_ascii(text.as_bytes())
    } else {
        expect_tokens_of_any(text)
    }
}

fn expect_tokens_of_any(text: &str) -> u64 {
    let (mut thousandths, mut before) = (0, Kind::Other);
    let mut known = 0;
    for (at, c) in text.char_indices() {
        if at < known {
            continue;
        }
        let kind = Kind::of(c);
        if !matches!(before, Kind::Letter | Kind::Digit) {
            let id = id_chars(&text.as_bytes()[at..]);
            if id > 0 {
                thousandths += id as u64 * ID_SHARE;
                (known, before) = (at + id, Kind::Letter);
                continue;
            }
        }
        thousandths += match (before, kind) {
            // A run of spaces is one token, however long.
            (Kind::Space, Kind::Space) => 0,
            (Kind::Letter, Kind::Digit) | (Kind::Digit, Kind::Letter) => share(c) + MIXED,
            (_, _) => share(c),
        };
        before = kind;
    }
    u64::div_ceil(thousandths, 1_000)
}

/// The maximum tokens of a message: its content, its calls and its overhead.
pub fn estimate_message_tokens(message: &Message) -> u64 {
    message_tokens(message, estimate_tokens)
}

/// The expected tokens of a message.
pub fn expect_message_tokens(message: &Message) -> u64 {
    message_tokens(message, expect_tokens)
}

/// The maximum tokens of a whole request: system prompt, messages and tools. The output schema
/// counts where it is part of the system prompt.
pub fn estimate_request_tokens(request: &Request) -> u64 {
    request_tokens(request, estimate_tokens)
}

/// The expected tokens of a whole request.
pub fn expect_request_tokens(request: &Request) -> u64 {
    request_tokens(request, expect_tokens)
}

/// The expected tokens of a tool on offer.
pub fn expect_tool_tokens(tool: &ToolSpec) -> u64 {
    tool_tokens(tool, expect_tokens)
}

/// The maximum tokens of an answer.
pub fn estimate_answer_tokens(content: &[ContentPart], calls: &[ToolCall]) -> u64 {
    answer_tokens(content, calls, estimate_tokens)
}

/// Counts the tokens of a text.
type Count = fn(&str) -> u64;

fn request_tokens(request: &Request, count: Count) -> u64 {
    let system = request.system.as_deref().map_or(0, count);
    let messages = request.messages.iter();
    let messages: u64 = messages.map(|message| message_tokens(message, count)).sum();
    let tail = request.tail.as_deref().map_or(0, count);
    let tools = request.tools.iter();
    let tools: u64 = tools.map(|tool| tool_tokens(tool, count)).sum();
    system + messages + tail + tools
}

fn tool_tokens(tool: &ToolSpec, count: Count) -> u64 {
    let schema = tool.parameters.to_string();
    let texts = [&tool.name, &tool.description, &schema];
    let texts: u64 = texts.into_iter().map(|text| count(text)).sum();
    MESSAGE_TOKENS + texts
}

fn message_tokens(message: &Message, count: Count) -> u64 {
    MESSAGE_TOKENS + answer_tokens(&message.content, &message.tool_calls, count)
}

fn answer_tokens(content: &[ContentPart], calls: &[ToolCall], count: Count) -> u64 {
    let parts = content.iter().map(|part| part_tokens(part, count));
    let calls = calls.iter().map(|call| call_tokens(call, count));
    parts.chain(calls).sum()
}

fn part_tokens(part: &ContentPart, count: Count) -> u64 {
    match part {
        ContentPart::Text { text } | ContentPart::Reasoning { text, .. } => count(text),
        ContentPart::Image { .. } => IMAGE_TOKENS,
        // It is not shown to models.
        ContentPart::Digest { .. } => 0,
        ContentPart::Attached(Attached { json, .. }) => count(json),
        ContentPart::File { name, source } => {
            let inside = match source {
                FileSource::Text { text } => count(text),
                FileSource::Base64 { data, .. } => {
                    let tokens = data.len() as u64 / DATA_CHARS_PER_TOKEN;
                    tokens.max(IMAGE_TOKENS)
                }
                FileSource::Blob { bytes, .. } => {
                    let chars = bytes.div_ceil(3) * 4;
                    (chars / DATA_CHARS_PER_TOKEN).max(IMAGE_TOKENS)
                }
            };
            count(name) + inside
        }
    }
}

fn call_tokens(call: &ToolCall, count: Count) -> u64 {
    count(&call.id) + count(&call.name) + count(&call.arguments.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_has_no_more_tokens_than_is_said() {
        for (text, expected) in [
            ("", 0),
            ("a", 1),
            ("abcd", 2),
            ("The quick brown fox", 6),
            ("1 + 23", 6),
            ("fn main() {}", 8),
            ("日本語", 9),
            ("привет", 12),
            ("a  b", 3),
            ("    ", 4),
        ] {
            assert_eq!(estimate_tokens(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn ids_take_the_same_whichever_they_are(a in "[0-9a-f]{32}", b in "[0-9a-f]{32}") {
            let text = |id: &str| format!("child ses_{id}, then ({id}) and {id}{id}.");
            prop_assert_eq!(estimate_tokens(&text(&a)), estimate_tokens(&text(&b)));
            prop_assert_eq!(expect_tokens(&text(&a)), expect_tokens(&text(&b)));
        }
    }

    /// Texts with the number of tokens that `o200k_base` makes of them.
    const COUNTED: [(&str, u64); 14] = [
        (
            "The scheduler keeps sessions and sends in the database, and puts small jobs on a queue.",
            18,
        ),
        (
            "fn main() {\n    let answer = read_line().unwrap_or_default();\n    println!(\"{answer}\");\n}\n",
            21,
        ),
        (
            r#"{"name":"read_file","arguments":{"path":"src/main.rs","offset":120}}"#,
            18,
        ),
        ("東京は日本の首都です。人口は約千四百万人です。", 17),
        ("数据库是唯一的事实来源，队列可以随时丢弃。", 16),
        (
            "Планировщик хранит сессии в базе данных и ставит задания в очередь.",
            19,
        ),
        ("데이터베이스가 유일한 진실이며 대기열은 버려도 된다.", 20),
        ("الجدول الزمني يحفظ الجلسات في قاعدة البيانات", 13),
        (
            "Die Datenbank ist die einzige Wahrheit; die Warteschlange darf verloren gehen, ohne daß \
             größere Schäden entstehen.",
            22,
        ),
        ("डेटाबेस ही एकमात्र सत्य है और कतार को छोड़ा जा सकता है।", 19),
        ("ฐานข้อมูลคือความจริงเพียงหนึ่งเดียว", 9),
        ("🎉🚀👩‍💻 done!", 11),
        (
            "2026-11-24T23:36:07Z 192.168.10.254 0x7ffd3a1c 3.14159265",
            36,
        ),
        ("ses_0198f3a27b6c7d1e8f90a1b2c3d4e5f6", 30),
    ];

    #[test]
    fn what_is_expected_is_near_what_is_counted_in_every_script() {
        for (text, counted) in COUNTED {
            let expected = expect_tokens(text);
            let ratio = expected as f64 / counted as f64;
            assert!(
                (0.75..1.5).contains(&ratio),
                "{expected} for {counted}: {text}"
            );
        }
    }

    /// Counts as a tokenizer does that knows few words: pieces of three letters, with the space
    /// before them; all else by its bytes.
    fn pessimistic(text: &str) -> u64 {
        let bytes = text.as_bytes();
        let (mut tokens, mut at) = (0, 0);
        while at < bytes.len() {
            let begin = at;
            if bytes[at] == b' ' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic) {
                at += 1;
            }
            while at < bytes.len() && at - begin < 4 && bytes[at].is_ascii_alphabetic() {
                let letters = at - begin + usize::from(bytes[begin] != b' ');
                if letters > 3 {
                    break;
                }
                at += 1;
            }
            at = at.max(begin + 1);
            tokens += 1;
        }
        tokens
    }

    proptest! {
        #[test]
        fn no_script_has_more_tokens_than_is_estimated(
            text in "([a-zA-Z ]{0,12}|[0-9 .,{}\"]{0,9}|[\\x{4e00}-\\x{9fff}]{0,8}|\
                     [\\x{ac00}-\\x{d7a3}]{0,8}|[\\x{3040}-\\x{309f}]{0,8}|\
                     [\\x{400}-\\x{4ff} ]{0,12}|[\\x{600}-\\x{6ff} ]{0,12}|\
                     [\\x{900}-\\x{97f}]{0,8}|[\\x{e00}-\\x{e7f}]{0,8}|\
                     [\\x{1f600}-\\x{1f64f}]{0,4}|\n\t){0,12}",
        ) {
            prop_assert!(estimate_tokens(&text) >= pessimistic(&text), "{text:?}");
            // No tokenizer has tokens of less than a byte.
            prop_assert!(estimate_tokens(&text) <= text.len() as u64);
            prop_assert!(expect_tokens(&text) <= estimate_tokens(&text).max(1));
            let ascii: String = text.chars().filter(char::is_ascii).collect();
            prop_assert_eq!(expect_tokens(&ascii), expect_tokens_of_any(&ascii));
        }
    }
}
