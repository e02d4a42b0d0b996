//! Refusals in a vendor's own words.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rules::{Form, Refusal};

/// The status and body of a refusal.
pub fn render(
    form: &Form,
    refusal: &Refusal,
    words: &BTreeMap<&'static str, String>,
) -> (u16, String) {
    let message = fill(
        refusal
            .message
            .as_deref()
            .unwrap_or("Invalid value for '{at}'."),
        words,
    );
    let json = |text: Option<String>| text.map_or(Value::Null, Value::String).to_string();
    let kind = refusal.kind.as_deref().unwrap_or(&form.kind);
    let code = refusal.code.clone().unwrap_or(Value::Null).to_string();
    let param = json(refusal.param.as_ref().map(|param| fill(param, words)));
    let mut escaped = words.clone();
    for word in escaped.values_mut() {
        *word = inside(word);
    }
    let body = refusal.body.as_deref().unwrap_or(&form.body);
    let body = fill(body, &escaped)
        .replace("{message}", &inside(&message))
        .replace("{type}", kind)
        .replace("{code}", &code)
        .replace("{param}", &param);
    (refusal.status.unwrap_or(form.status), body)
}

/// A text as it stands between the quotes of a JSON text.
fn inside(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn fill(template: &str, words: &BTreeMap<&'static str, String>) -> String {
    words
        .iter()
        .fold(template.to_owned(), |text, (name, word)| {
            text.replace(&format!("{{{name}}}"), word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_quotes_leave_a_body_that_is_json() {
        let form = Form {
            status: 400,
            body: r#"{"error":{"message":"{message}","code":{code},"param":{param}}}"#.to_owned(),
            kind: String::new(),
        };
        let refusal = Refusal {
            message: Some("no {value}".to_owned()),
            code: Some(7.into()),
            ..Refusal::default()
        };
        let words = BTreeMap::from([("value", "\"x\"\n".to_owned())]);
        let (status, body) = render(&form, &refusal, &words);
        assert_eq!(status, 400);
        assert_eq!(
            serde_json::from_str::<Value>(&body).unwrap(),
            serde_json::json!({"error": {"message": "no \"x\"\n", "code": 7, "param": null}})
        );
    }
}
