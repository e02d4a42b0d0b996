//! The refusals of vendors in their own words.

pub(super) mod tables;

use self::tables::*;
use super::*;

fn judged(host: &str, status: u16, body: &str) -> Error {
    let refusal = Refusal::from_body(body.as_bytes(), &ProviderSecrets::at(host), NOW);
    classify(status, &refusal, None)
}

fn check(rows: &[Row]) {
    for (host, status, body, expected) in rows {
        let error = judged(host, *status, body);
        assert_eq!(error.code().as_str(), *expected, "{host} {status} {body}");
    }
}

#[test]
fn an_overflow_is_known_by_each_vendors_words() {
    check(OVERFLOWS);
}

#[test]
fn a_long_id_and_a_long_request_for_the_minute_are_no_overflow() {
    let refused = "llm.invalid_request";
    check(&[
        (
            OPENAI,
            400,
            r#"{"error":{"message":"Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 51 instead.","type":"invalid_request_error","param":"messages[1].tool_calls[0].id","code":"string_above_max_length"}}"#,
            refused,
        ),
        (
            OPENAI,
            400,
            r#"{"error":{"message":"Invalid 'tools[3].function.description': string too long.","type":"invalid_request_error","param":"tools[3].function.description","code":"string_above_max_length"}}"#,
            refused,
        ),
        (
            GROQ,
            413,
            r#"{"error":{"message":"Request too large for model `openai/gpt-oss-20b` in organization `org` service tier `on_demand` on tokens per minute (TPM): Limit 8000, Requested 8076, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#,
            refused,
        ),
        (
            OPENAI,
            429,
            r#"{"error":{"message":"Request too large for gpt-4o in organization org on tokens per min (TPM): Limit 30000, Requested 35000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            refused,
        ),
    ]);
}

#[test]
fn an_empty_purse_is_known_by_each_vendors_words() {
    check(UNPAID);
    for code in [1008, 1004] {
        let body = format!(r#"{{"base_resp":{{"status_code":{code},"status_msg":"x"}}}}"#);
        let refusal = Refusal::from_body(body.as_bytes(), &ProviderSecrets::at(MINIMAX), NOW);
        assert_eq!(classify_inside(&refusal).code().as_str(), NO_MONEY);
    }
}

#[test]
fn throttling_is_told_from_an_empty_purse_and_says_how_long_to_wait() {
    for (host, status, body, millis) in THROTTLED {
        let error = judged(host, *status, body);
        assert_eq!(error.code().as_str(), "llm.rate_limited", "{host} {body}");
        let wait = error.retry_after().map(|wait| wait.as_millis());
        assert_eq!(wait, *millis, "{host} {body}");
    }
}

#[test]
fn a_reset_in_a_header_is_a_wait_where_there_is_no_other() {
    let mut headers = HeaderMap::new();
    let value = |text: &'static str| reqwest::header::HeaderValue::from_static(text);
    headers.insert("x-ratelimit-reset", value("1764000030000"));
    let wait = |status, headers: &HeaderMap| header_wait(status, headers, NOW);
    assert_eq!(wait(429, &headers), Some(Duration::from_secs(30)));
    assert_eq!(wait(400, &headers), None);
    headers.insert("retry-after", value("7"));
    assert_eq!(wait(429, &headers), Some(Duration::from_secs(7)));
}

#[test]
fn a_bad_sample_and_a_full_house_are_tried_again() {
    check(&[
        (
            GROQ,
            400,
            r#"{"error":{"message":"Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=x>"}}"#,
            "llm.bad_response",
        ),
        (
            GROQ,
            400,
            r#"{"error":{"message":"Failed to generate JSON.","type":"invalid_request_error","code":"json_validate_failed","failed_generation":"the maximum context length"}}"#,
            "llm.bad_response",
        ),
        (
            GROQ,
            498,
            r#"{"error":{"message":"Flex tier capacity exceeded","type":"capacity_exceeded"}}"#,
            "llm.unavailable",
        ),
        (
            GLM,
            400,
            r#"{"error":{"code":"1234","message":"网络错误"}}"#,
            "llm.unavailable",
        ),
    ]);
}

#[test]
fn a_filter_is_known_by_each_vendors_words() {
    let filtered = "llm.refused";
    check(&[
        (
            "x.openai.azure.com",
            400,
            r#"{"error":{"code":"content_filter","message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
            filtered,
        ),
        (
            ANTHROPIC,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
            filtered,
        ),
        (
            DASHSCOPE,
            400,
            r#"{"error":{"code":"data_inspection_failed","message":"Input data may contain inappropriate content."}}"#,
            filtered,
        ),
        (
            OPENROUTER,
            403,
            r#"{"error":{"message":"Input flagged","code":403,"metadata":{"reasons":["x"],"flagged_input":"x"}}}"#,
            filtered,
        ),
        (
            OPENROUTER,
            403,
            r#"{"error":{"message":"openai/gpt-4o requires moderation on OpenAI. Your input was flagged for \"x\"","code":403}}"#,
            filtered,
        ),
        (
            GLM,
            400,
            r#"{"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容"}}"#,
            filtered,
        ),
        (
            OPENAI,
            400,
            r#"{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","code":"invalid_prompt"}}"#,
            filtered,
        ),
        (
            KIMI,
            400,
            r#"{"error":{"message":"The request was rejected because it was considered high risk","type":"content_filter"}}"#,
            filtered,
        ),
    ]);
    let body = r#"{"base_resp":{"status_code":1026,"status_msg":"input new_sensitive"}}"#;
    let refusal = Refusal::from_body(body.as_bytes(), &ProviderSecrets::at(MINIMAX), NOW);
    assert_eq!(classify_inside(&refusal).code().as_str(), filtered);
}

#[test]
fn a_model_that_is_gone_is_told_from_a_wrong_path() {
    check(GONE);
}

#[test]
fn what_fastapi_and_mistral_point_at_is_in_the_message() {
    let told = ProviderSecrets::default();
    for body in [
        r#"{"detail":[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted","input":"a long thought"}]}"#,
        r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted","input":"a long thought"}]},"type":"invalid_request_error","code":3001}"#,
    ] {
        let refusal = Refusal::from_body(body.as_bytes(), &told, NOW);
        assert_eq!(
            refusal.message,
            "body.messages.1.assistant.reasoning_content: Extra inputs are not permitted"
        );
        assert_eq!(
            refusal.places(),
            ["body.messages.1.assistant.reasoning_content"]
        );
        assert!(!refusal.lower().contains("long thought"));
    }
    let body = r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"bad thing\"}}"}}}"#;
    let refusal = Refusal::from_body(body.as_bytes(), &told, NOW);
    assert_eq!(refusal.message, "Provider returned error: bad thing");
}

#[test]
fn a_body_of_any_depth_and_size_is_read_in_bounds() {
    let told = ProviderSecrets::default();
    let deep = format!("{}1{}", r#"{"error":"#.repeat(100), "}".repeat(100));
    let _ = Refusal::from_body(deep.as_bytes(), &told, NOW);
    let wide = format!(r#"{{"detail":[{}]}}"#, vec![r#""é""#; 60_000].join(","));
    let refusal = Refusal::from_body(wide.as_bytes(), &told, NOW);
    assert!(refusal.words().len() <= 8 * 1024);
}
