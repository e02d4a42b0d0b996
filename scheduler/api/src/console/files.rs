//! The files of the console's page, with what lets a browser keep them.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Bytes of a hash that tell versions of a file apart.
const TAG_BYTES: usize = 16;

/// The page.
pub(super) static PAGE: LazyLock<File> = LazyLock::new(|| {
    let bytes = include_bytes!("../../console/index.html");
    File::new("text/html; charset=utf-8", bytes)
});

/// Its script.
pub(super) static SCRIPT: LazyLock<File> = LazyLock::new(|| {
    let bytes = include_bytes!("../../console/app.js");
    File::new("text/javascript; charset=utf-8", bytes)
});

/// Its style sheet.
pub(super) static SHEET: LazyLock<File> = LazyLock::new(|| {
    let bytes = include_bytes!("../../console/app.css");
    File::new("text/css; charset=utf-8", bytes)
});

/// A file in both of its encodings.
pub(super) struct File {
    kind: &'static str,
    plain: Form,
    /// None if it could not be compressed.
    packed: Option<Form>,
}

/// One encoding of a file.
struct Form {
    bytes: Bytes,
    /// The entity tag, which no other encoding has.
    tag: String,
}

impl File {
    fn new(kind: &'static str, bytes: &'static [u8]) -> Self {
        let hash = STANDARD.encode(&Sha256::digest(bytes)[..TAG_BYTES]);
        let packed = gzip(bytes).ok().map(|packed| Form {
            bytes: packed.into(),
            tag: format!("\"{hash}-gzip\""),
        });
        Self {
            kind,
            plain: Form {
                bytes: Bytes::from_static(bytes),
                tag: format!("\"{hash}\""),
            },
            packed,
        }
    }

    /// The response to a request with these headers.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Response {
        let packed = self.packed.as_ref().filter(|_| takes_gzip(headers));
        let form = packed.unwrap_or(&self.plain);
        let is_known = knows(headers, &form.tag);
        let mut response = if is_known {
            Response::new(Body::empty())
        } else {
            Response::new(Body::from(form.bytes.clone()))
        };
        let mut says = vec![
            (CACHE_CONTROL, "no-cache"),
            (VARY, "accept-encoding"),
            (ETAG, &form.tag),
        ];
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            says.push((CONTENT_TYPE, self.kind));
            says.extend(packed.map(|_| (CONTENT_ENCODING, "gzip")));
        }
        for (name, text) in says {
            if let Ok(value) = HeaderValue::from_str(text) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes)?;
    packer.finish()
}

/// The items of a header that is a list, without the spaces around them.
fn items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

/// Whether a request names gzip among the encodings that it takes.
fn takes_gzip(headers: &HeaderMap) -> bool {
    items(headers, ACCEPT_ENCODING).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=");
        let weight = weight.and_then(|weight| weight.parse().ok());
        let is_none = weight.is_some_and(|weight: f64| weight <= 0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_none
    })
}

/// Whether whoever asks has the form with this tag already.
fn knows(headers: &HeaderMap, tag: &str) -> bool {
    items(headers, IF_NONE_MATCH).any(|item| {
        // Two tags of which one is weak are compared without saying so.
        item == "*" || item.strip_prefix("W/").unwrap_or(item) == tag
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::body::to_bytes;

    use super::*;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let value = HeaderValue::from_static(value);
        HeaderMap::from_iter([(HeaderName::from_static(name), value)])
    }

    #[tokio::test]
    async fn what_is_packed_is_the_file() {
        for file in [&PAGE, &SCRIPT, &SHEET] {
            let response = file.answer(&headers("accept-encoding", "br, GZIP;q=0.5"));
            assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
            let body = to_bytes(response.into_body(), 1 << 20).await;
            let body = body.expect("a body");
            let mut unpacked = Vec::new();
            let read = flate2::read::GzDecoder::new(&*body).read_to_end(&mut unpacked);
            read.expect("is gzip");
            assert_eq!(unpacked, file.plain.bytes);
        }
    }

    #[test]
    fn gzip_is_sent_to_whoever_names_it() {
        for takes in ["gzip", "deflate, gzip;q=1.0", "gzip ; q=0.1", "br,gzip"] {
            assert!(takes_gzip(&headers("accept-encoding", takes)), "{takes}");
        }
        for not in ["", "*", "br", "gzip;q=0", "gzip; q=0.000", "x-gzip"] {
            assert!(!takes_gzip(&headers("accept-encoding", not)), "{not}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_tag_is_known_among_others_weak_or_not() {
        for known in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(knows(&headers("if-none-match", known), "\"a\""), "{known}");
        }
        for other in ["\"b\"", "a", "\"a-gzip\"", ""] {
            assert!(!knows(&headers("if-none-match", other), "\"a\""), "{other}");
        }
    }
}
