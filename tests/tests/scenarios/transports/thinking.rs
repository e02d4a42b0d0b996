//! How requests set the amount of thinking.

use mainspring_providers::Kind;
use mainspring_shared::agent::ReasoningEffort;
use mainspring_worker::llm::Request;
use serde_json::{Value, json};

use super::hello;
use super::requests::sent;

#[tokio::test]
async fn messages_think_as_much_as_is_left_of_the_answer() {
    let thinks = async |effort, tokens, max_tokens| {
        let request = Request {
            reasoning_effort: effort,
            thinking_tokens: tokens,
            temperature: Some(0.5),
            top_p: Some(0.5),
            max_tokens,
            ..hello()
        };
        let body = sent(Kind::Anthropic, "/v1", true, &request).await.body;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let sampled = body.get("temperature").is_some() || body.get("top_p").is_some();
        assert_eq!(sampled, body.get("thinking").is_none(), "{body}");
        body["thinking"]["budget_tokens"].as_u64()
    };
    let medium = Some(ReasoningEffort::Medium);
    assert_eq!(thinks(None, None, 8_000).await, None);
    assert_eq!(thinks(None, Some(4_000), 8_000).await, Some(4_000));
    assert_eq!(thinks(None, Some(4_000), 3_000).await, Some(2_999));
    assert_eq!(thinks(None, Some(4_000), 1_000).await, None);
    assert_eq!(thinks(medium, None, 8_000).await, Some(4_000));
    assert_eq!(thinks(medium, Some(1_024), 8_000).await, Some(1_024));
    assert_eq!(
        thinks(Some(ReasoningEffort::Minimal), None, 8_000).await,
        None
    );
}

#[tokio::test]
async fn a_model_that_decides_how_much_it_thinks_is_given_an_effort_only() {
    let asked = async |effort, tokens| {
        let request = Request {
            reasoning_effort: effort,
            thinking_tokens: tokens,
            adaptive: true,
            temperature: Some(0.5),
            top_p: Some(0.97),
            ..hello()
        };
        let body = sent(Kind::Anthropic, "/v1", true, &request).await.body;
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert!(body.get("temperature").is_none() && body.get("top_p").is_none());
        let thinking = body["thinking"].clone();
        (thinking, body["output_config"]["effort"].clone())
    };
    let thinks = json!({ "type": "adaptive", "display": "summarized" });
    assert_eq!(asked(None, None).await, (Value::Null, Value::Null));
    assert_eq!(
        asked(None, Some(4_000)).await,
        (thinks.clone(), Value::Null)
    );
    for (effort, said, is_thinking) in [
        (ReasoningEffort::None, "low", false),
        (ReasoningEffort::Minimal, "low", false),
        (ReasoningEffort::Low, "low", true),
        (ReasoningEffort::Medium, "medium", true),
        (ReasoningEffort::High, "high", true),
        (ReasoningEffort::XHigh, "xhigh", true),
        (ReasoningEffort::Max, "max", true),
    ] {
        let thinking = if is_thinking {
            thinks.clone()
        } else {
            Value::Null
        };
        assert_eq!(asked(Some(effort), None).await, (thinking, json!(said)));
    }
}

#[tokio::test]
async fn openai_is_given_each_effort_as_it_is() {
    let efforts = [
        (ReasoningEffort::None, "none"),
        (ReasoningEffort::XHigh, "xhigh"),
        (ReasoningEffort::Max, "max"),
    ];
    let kinds = [Kind::OpenAi, Kind::OpenAiResponses];
    let cases = efforts.map(|effort| kinds.map(|kind| (kind, effort)));
    for (kind, (effort, said)) in cases.into_iter().flatten() {
        let request = Request {
            reasoning_effort: Some(effort),
            ..hello()
        };
        let body = sent(kind, "/v1", true, &request).await.body;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let effort = body
            .get("reasoning_effort")
            .unwrap_or(&body["reasoning"]["effort"]);
        assert_eq!(effort, said, "{body}");
    }
}
