use super::*;
use mainspring_shared::error::Coded;
use mainspring_worker::llm::Secret;

use super::shown::MESSAGE_CHARS_MAX;
use crate::settings::ProviderSettings;

const NOW: Timestamp = Timestamp(1_764_000_000_000);

fn code(status: u16, body: &str) -> String {
    let refusal = Refusal::from_body(body.as_bytes(), &ProviderSecrets::default(), NOW);
    classify(status, &refusal, None).code().to_string()
}

#[test]
fn every_status_has_its_meaning() {
    let table = [
        (301, "llm.bad_response"),
        (400, "llm.invalid_request"),
        (401, "llm.auth"),
        (402, "llm.auth"),
        (403, "llm.auth"),
        (404, "llm.invalid_request"),
        (408, "llm.unavailable"),
        (409, "llm.unavailable"),
        (413, "llm.context_overflow"),
        (418, "llm.invalid_request"),
        (422, "llm.invalid_request"),
        (425, "llm.unavailable"),
        (429, "llm.rate_limited"),
        (500, "llm.unavailable"),
        (503, "llm.unavailable"),
        (529, "llm.unavailable"),
    ];
    for (status, expected) in table {
        assert_eq!(code(status, ""), expected, "{status}");
    }
}

#[test]
fn the_body_tells_an_overflow_a_filter_and_an_empty_purse_from_a_plain_refusal() {
    let table = [
        (
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            "llm.context_overflow",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8"}}"#,
            "llm.context_overflow",
        ),
        (
            422,
            r#"{"detail":"This model's maximum context length is 8 tokens"}"#,
            "llm.context_overflow",
        ),
        (
            400,
            r#"{"error":{"code":"content_filter","message":"x"}}"#,
            "llm.refused",
        ),
        (
            429,
            r#"{"error":{"code":"insufficient_quota","message":"x"}}"#,
            "llm.auth",
        ),
        (
            400,
            r#"{"error":{"message":"Your credit balance is too low"}}"#,
            "llm.auth",
        ),
        (400, r#"{"error":"no such thing"}"#, "llm.invalid_request"),
        (400, "not json", "llm.invalid_request"),
    ];
    for (status, body, expected) in table {
        assert_eq!(code(status, body), expected, "{body}");
    }
}

#[test]
fn an_error_inside_an_answer_is_judged_by_its_type() {
    let table = [
        (
            r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "llm.unavailable",
        ),
        (
            r#"{"error":{"type":"rate_limit_error","message":"x"}}"#,
            "llm.rate_limited",
        ),
        (
            r#"{"error":{"code":429,"message":"x"}}"#,
            "llm.rate_limited",
        ),
        (
            r#"{"error":{"code":"invalid_api_key","message":"x"}}"#,
            "llm.auth",
        ),
        (
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long"}}"#,
            "llm.context_overflow",
        ),
        (
            r#"{"error":{"type":"invalid_request_error","message":"x"}}"#,
            "llm.invalid_request",
        ),
        (r#"{"error":"something"}"#, "llm.unavailable"),
    ];
    for (body, expected) in table {
        let refusal = Refusal::from_body(body.as_bytes(), &ProviderSecrets::default(), NOW);
        assert_eq!(
            classify_inside(&refusal).code().to_string(),
            expected,
            "{body}"
        );
    }
}

#[test]
fn nothing_that_looks_like_the_key_is_shown() {
    let key = ProviderSecrets::key("abcdef-0123456789-uvwxyz");
    for words in [
        "Incorrect API key provided: abcdef-0123456789-uvwxyz.",
        "Incorrect API key provided: abcdef-0*****wxyz.",
        "bad key 'abcdef-01' given",
        "bad key (...uvwxyz)",
        "key=sk-ant-api03-other",
    ] {
        let shown = presentable(words, &key);
        assert!(shown.contains("[redacted]"), "{shown}");
        for part in ["abcdef", "uvwxyz", "wxyz", "sk-ant"] {
            assert!(!shown.contains(part), "{shown}");
        }
    }
    let plain = "The model `gpt-4o-mini` does not exist: see https://example.com/docs";
    assert_eq!(presentable(plain, &key), plain);
    assert_eq!(presentable("a\n\tb\0c", &key), "a b c");
    assert_eq!(presentable(&"é ".repeat(1_000), &key).chars().count(), 300);
}

#[test]
fn nothing_else_that_the_provider_was_told_is_shown() {
    let settings = ProviderSettings {
        api_key: Secret::new("the-key-0123456789"),
        headers: vec![("x-more".to_owned(), Secret::new("Token a-header-01"))],
        ..ProviderSettings::new("test", crate::settings::Kind::OpenAi)
    };
    let told = ProviderSecrets::of(
        &settings,
        "https://me:a-password@a.example/v1?key=a-query-01",
    );
    let words = "not with a-header-01, a-password, a-query-01 and the-key-0123456789";
    let shown = presentable(words, &told);
    assert_eq!(
        shown,
        "not with [redacted], [redacted], [redacted] and [redacted]"
    );
    // Not even if the rest of it was truncated.
    let long = format!("{}a-header-01", "x ".repeat(2 * MESSAGE_CHARS_MAX - 3));
    assert!(!presentable(&long, &told).contains("a-h"));
}

mod reports;
mod vendors;
