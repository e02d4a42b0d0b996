//! Turns the bytes of a response into what the model reads.

use std::collections::BTreeMap;

use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use serde_json::value::RawValue;

use mainspring_shared::secrets::Secrets;
use mainspring_worker::tool::Output;

/// Bytes of an error's body that are read; enough for what can be shown.
const SAID_BYTES_MAX: usize = 16 * 1024;

/// Characters of an error's body that the model is shown.
const SAID_CHARS_MAX: usize = 4_000;

/// A response body, up to the requested size.
#[derive(Debug, Default)]
pub(super) struct Body {
    content_type: String,
    bytes: Vec<u8>,
    cut: bool,
}

impl Body {
    /// Reads at most `bytes_max` bytes.
    pub(super) async fn read(
        mut response: Response,
        bytes_max: usize,
    ) -> Result<Self, reqwest::Error> {
        let content_type = response.headers().get(CONTENT_TYPE);
        let mut body = Self {
            content_type: content_type
                .and_then(|value| value.to_str().ok())
                .and_then(|value| value.split(';').next())
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase(),
            ..Self::default()
        };
        while let Some(piece) = response.chunk().await? {
            let room = bytes_max - body.bytes.len();
            body.bytes
                .extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                body.cut = true;
                break;
            }
        }
        Ok(body)
    }

    /// The error body of a tool with secrets hidden; empty if it cannot be read.
    pub(super) async fn said(response: Response, secrets: &Secrets) -> String {
        let body = Self::read(response, SAID_BYTES_MAX).await;
        // An error quotes what it was sent as a success does.
        let body = body.unwrap_or_default().without(secrets);
        // Before truncation, because half of a secret would not be recognized.
        let text = secrets.hidden(&String::from_utf8_lossy(&body.bytes));
        let text = text.trim();
        match text.char_indices().nth(SAID_CHARS_MAX) {
            Some((end, _)) => format!("{} […]", &text[..end]),
            None => text.to_owned(),
        }
    }

    /// The same without these secrets, however they are quoted.
    pub(super) fn without(mut self, secrets: &Secrets) -> Self {
        let Ok(text) = std::str::from_utf8(self.whole_characters()) else {
            if self.is_text() {
                let text = String::from_utf8_lossy(&self.bytes).into_owned();
                self.bytes = secrets.replaced(&text).into_bytes();
            }
            return self;
        };
        let mut hidden = secrets.replaced(text);
        if self.cut {
            hidden.truncate(secrets.end_before(&hidden).len());
        } else if self.is_json()
            && text.contains('\\')
            && let Ok(mut value) = serde_json::from_str::<Value>(text)
            && hide(&mut value, secrets)
        {
            // It was written with escapes that hid it from a look at the text.
            hidden = value.to_string();
        }
        self.bytes = hidden.into_bytes();
        self
    }

    /// The output of a successful call that is only this part of the answer; what is wrong if it has none.
    pub(super) fn picked(self, pointer: &str) -> Result<Output, String> {
        if self.cut {
            return Err(format!(
                "the answer has more than {} bytes",
                self.bytes.len()
            ));
        }
        let text = std::str::from_utf8(&self.bytes).ok();
        let found = text.and_then(|text| pick(text, pointer));
        let output = found.and_then(Output::of_json);
        output.ok_or_else(|| format!("there is nothing at {pointer} in its answer"))
    }

    /// The output of a successful call.
    pub(super) fn output(self) -> Output {
        if self.is_json()
            && !self.cut
            && let Ok(text) = std::str::from_utf8(&self.bytes)
            && let Some(output) = Output::of_json(text)
        {
            return output;
        }
        if !self.is_text() && std::str::from_utf8(self.whole_characters()).is_err() {
            let kind = if self.content_type.is_empty() {
                "no type"
            } else {
                &self.content_type
            };
            let more = if self.cut { "more than " } else { "" };
            let bytes = self.bytes.len();
            return Output::text(format!(
                "[{more}{bytes} bytes of {kind}, which is not text]"
            ));
        }
        let text = String::from_utf8_lossy(self.whole_characters());
        if self.cut {
            let bytes = self.bytes.len();
            return Output::text(format!(
                "{text}\n[… the answer was cut after {bytes} bytes …]"
            ));
        }
        Output::text(text)
    }

    fn is_json(&self) -> bool {
        self.content_type == "application/json" || self.content_type.ends_with("+json")
    }

    fn is_text(&self) -> bool {
        self.content_type.starts_with("text/") || self.is_json()
    }

    /// The bytes without a last character that was cut in the middle.
    fn whole_characters(&self) -> &[u8] {
        match std::str::from_utf8(&self.bytes) {
            Err(error) if self.cut && error.error_len().is_none() => {
                &self.bytes[..error.valid_up_to()]
            }
            _ => &self.bytes,
        }
    }
}

/// Hides secrets in the texts of a value; whether there were any.
fn hide(value: &mut Value, secrets: &Secrets) -> bool {
    match value {
        Value::String(text) => {
            let hidden = secrets.replaced(text);
            let is_changed = hidden != *text;
            *text = hidden;
            is_changed
        }
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |any, item| hide(item, secrets) | any),
        Value::Object(members) => {
            let is_named = members.keys().any(|name| secrets.replaced(name) != *name);
            if is_named {
                let named = std::mem::take(members).into_iter();
                *members = named
                    .map(|(name, value)| (secrets.replaced(&name), value))
                    .collect();
            }
            members
                .values_mut()
                .fold(is_named, |any, item| hide(item, secrets) | any)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The part of a JSON text that a pointer names, as it was written.
fn pick<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
    let mut at: &RawValue = serde_json::from_str(text).ok()?;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        at = if at.get().starts_with('[') {
            let place: usize = token.parse().ok()?;
            let items: Vec<&RawValue> = serde_json::from_str(at.get()).ok()?;
            items.get(place)?
        } else {
            let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(at.get()).ok()?;
            members.remove(&token)?
        };
    }
    Some(at.get())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(content_type: &str, bytes: &[u8], cut: bool) -> Output {
        Body {
            content_type: content_type.to_owned(),
            bytes: bytes.to_vec(),
            cut,
        }
        .output()
    }

    #[test]
    fn json_is_a_value_and_everything_readable_is_text() {
        let value = json!({"a": [1, null]});
        let written = value.to_string();
        for kind in ["application/json", "application/problem+json"] {
            assert_eq!(
                output(kind, written.as_bytes(), false),
                Output::json(value.clone())
            );
        }
        for kind in ["text/plain", "text/html", "", "application/octet-stream"] {
            assert_eq!(
                output(kind, written.as_bytes(), false),
                Output::text(written.clone())
            );
        }
        let broken = output("application/json", b"{\"a\":", false);
        assert_eq!(broken, Output::text("{\"a\":"));
    }

    #[test]
    fn json_is_passed_on_as_it_was_written() {
        let written = "{\"wei\": 25000000000000000001, \"b\":\t[1e2, \"\\u0000\"], \"a\": 1.10}";
        let passed = output("application/json", written.as_bytes(), false);
        let text = "{\"wei\":25000000000000000001,\"b\":[1e2,\"\\u0000\"],\"a\":1.10}";
        assert_eq!(
            passed,
            Output::text(text),
            "a value would have another number"
        );
    }

    #[test]
    fn what_is_not_text_is_described() {
        let image = output("image/png", b"\x89PNG\r\n", false);
        assert_eq!(
            image,
            Output::text("[6 bytes of image/png, which is not text]")
        );
        let nameless = output("", b"\xff\xfe", true);
        let described = "[more than 2 bytes of no type, which is not text]";
        assert_eq!(nameless, Output::text(described));
        assert_eq!(
            output("text/plain", b"a\xffb", false),
            Output::text("a\u{fffd}b")
        );
    }

    #[test]
    fn a_cut_falls_between_characters_and_is_told() {
        let cut = output(
            "application/json",
            "[\"äö".as_bytes().split_last().expect("some").1,
            true,
        );
        assert_eq!(
            cut,
            Output::text("[\"ä\n[… the answer was cut after 5 bytes …]")
        );
    }
}
