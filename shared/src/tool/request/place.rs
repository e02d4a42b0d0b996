//! Templates, and what an argument may be in each place.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::BYTES_MAX;

/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A part of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Argument(&'a str),
}

/// A text with `{argument}` in it; `{{` and `}}` are braces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template<'a>(Vec<Part<'a>>);

impl<'a> Template<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            let brace = &from[..1];
            if from[1..].starts_with(brace) {
                parts.push(Part::Text(&rest[..=at]));
                rest = &from[2..];
                continue;
            }
            if !before.is_empty() {
                parts.push(Part::Text(before));
            }
            let name = from[1..].split_once('}').filter(|_| brace == "{");
            let Some((name, after)) = name.filter(|(name, _)| is_argument(name)) else {
                let shown = from.chars().take(20).collect::<String>();
                return Err(format!(
                    "has a brace that is not one of {{argument}}: {shown:?}"
                ));
            };
            parts.push(Part::Argument(name));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest));
        }
        Ok(Self(parts))
    }

    pub(super) fn fault(text: &'a str) -> Option<String> {
        if text.len() > BYTES_MAX {
            return Some(format!("must have at most {BYTES_MAX} bytes"));
        }
        Self::parse(text).err()
    }

    pub(super) fn parts(&self) -> &[Part<'a>] {
        &self.0
    }

    pub(super) fn arguments(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter_map(|part| match part {
            Part::Argument(name) => Some(*name),
            Part::Text(_) => None,
        })
    }

    /// The argument that it consists of, if it is nothing else.
    pub(super) fn alone(&self) -> Option<&'a str> {
        match self.0.as_slice() {
            [Part::Argument(name)] => Some(name),
            _ => None,
        }
    }
}

fn is_argument(name: &str) -> bool {
    !name.is_empty() && !name.contains(['{', '/', '?', '#', '"', '\r', '\n'])
}

/// The template of a URL: what comes before its path, its path, and the rest.
#[derive(Debug)]
pub(super) struct UrlTemplate<'a> {
    pub(super) origin: &'a str,
    pub(super) segments: Vec<Template<'a>>,
    pub(super) query: Option<&'a str>,
}

/// Reads the template of a URL; arguments may only stand in its path.
pub(super) fn of_url(url: &str) -> Result<UrlTemplate<'_>, String> {
    let misplaced = || "may have {argument} in its path only".to_owned();
    if url.len() > BYTES_MAX {
        return Err(format!("must have at most {BYTES_MAX} bytes"));
    }
    // Parsers of URLs drop or change some of these, which would move what is around them.
    if url.contains(|c: char| c.is_control() || c == '\\' || c == ' ') {
        return Err("must have no blanks, backslashes or control characters".to_owned());
    }
    if url.contains('#') {
        return Err("must have no fragment".to_owned());
    }
    let begin = url.find("://").map_or(0, |at| at + 3);
    let path = url[begin..].find(['/', '?']).map(|at| at + begin);
    let (origin, rest) = url.split_at(path.unwrap_or(url.len()));
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    if origin.contains(['{', '}']) || query.is_some_and(|query| query.contains(['{', '}'])) {
        return Err(misplaced());
    }
    // What lets someone in is a secret, and belongs into `auth`.
    if origin.contains('@') {
        return Err("must have no login".to_owned());
    }
    let segments = path.split('/').skip(1).map(Template::parse);
    Ok(UrlTemplate {
        origin,
        segments: segments.collect::<Result<_, _>>()?,
        query,
    })
}

/// A text as a part of a URL, where it has no meaning but itself.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Why a text cannot stand in a path, however it is encoded: some servers decode a path before they look for its
/// segments.
pub(super) fn path_fault(text: &str) -> Option<&'static str> {
    let is_dots = |piece: &str| matches!(piece, "." | "..");
    if text.is_empty() {
        Some("is empty")
    } else if text.contains(char::is_control) {
        Some("has control characters")
    } else if text.split(['/', '\\']).any(is_dots) {
        Some("has a segment of dots")
    } else {
        None
    }
}

/// Whether a segment means another place than itself, also to a server that decodes it first.
pub(super) fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    let plain = plain.replace("%2f", "/").replace("%5c", "/");
    plain.split('/').any(|piece| matches!(piece, "." | ".."))
}

/// Whether a text can stand in a header.
pub(super) fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
