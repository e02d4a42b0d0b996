//! In which encoding a text is.

use encoding_rs::{Encoding, UTF_8};

/// Bytes at the begin of a page that may name its encoding, as browsers look at them.
const NAMED_WITHIN: usize = 1_024;

/// The text of these bytes: by a byte order mark, else as the header says, else as the page itself does, else UTF-8.
pub(super) fn text(bytes: &[u8], content_type: &str, is_html: bool) -> String {
    let said = parameter(content_type, "charset").and_then(of_label);
    let named = || if is_html { in_page(bytes) } else { None };
    let encoding = said.or_else(named).unwrap_or(UTF_8);
    encoding.decode(bytes).0.into_owned()
}

fn of_label(label: &str) -> Option<&'static Encoding> {
    Encoding::for_label(label.trim_matches(['"', '\'', ' ']).as_bytes())
}

/// A parameter of a media type.
fn parameter<'a>(content_type: &'a str, name: &str) -> Option<&'a str> {
    let parameters = content_type.split(';').skip(1);
    let mut pairs = parameters.filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

/// What `<meta charset=…>` or `<meta http-equiv content="…charset=…">` says.
fn in_page(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(NAMED_WITHIN)]);
    let head = head.to_ascii_lowercase();
    for meta in head.split("<meta").skip(1) {
        let tag = meta.split('>').next().unwrap_or_default();
        let Some((_, value)) = tag.split_once("charset") else {
            continue;
        };
        let value = value.trim_start().strip_prefix('=')?.trim_start();
        let value = value.trim_start_matches(['"', '\'']);
        let label = value.split(['"', '\'', ' ', ';', '/']).next()?;
        let encoding = of_label(label)?;
        // Whoever can read this is not in UTF-16.
        return Some(if encoding.is_ascii_compatible() {
            encoding
        } else {
            UTF_8
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_found_where_browsers_look_for_it() {
        let umlaut = b"<p>\xe4";
        assert_eq!(
            text(umlaut, "text/html; Charset=\"ISO-8859-1\"", true),
            "<p>\u{e4}"
        );
        for page in [
            &b"<meta charset=latin1><p>\xe4"[..],
            b"<META HTTP-EQUIV=x content='text/html; charset=windows-1252'><p>\xe4",
        ] {
            assert!(text(page, "text/html", true).ends_with("<p>\u{e4}"));
            assert!(text(page, "text/html", false).ends_with("<p>\u{fffd}"));
        }
        // A mark at the begin wins, and what nobody knows is UTF-8.
        assert_eq!(
            text(b"\xef\xbb\xbf\xc3\xa4", "text/plain; charset=latin1", false),
            "\u{e4}"
        );
        assert_eq!(text(b"\xff\xfea\0", "text/plain", false), "a");
        assert_eq!(
            text("\u{e4}".as_bytes(), "text/plain; charset=what", false),
            "\u{e4}"
        );
        assert_eq!(
            text(b"<meta charset=utf-16>\xc3\xa4", "", true),
            "<meta charset=utf-16>\u{e4}"
        );
    }
}
