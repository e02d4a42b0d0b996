//! Requests of Messages that were refused, as users of comparable programs reported.

use super::*;
use crate::signature::Signature;

fn blocks(body: &Value) -> impl Iterator<Item = &Value> {
    let messages = body["messages"].as_array().expect("messages");
    messages
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten()
}

#[test]
fn no_block_is_blank() {
    // home-assistant/core#175637, anthropics/claude-code#62396, BiFangKNT/mtga#68.
    let request = Request {
        messages: messages(vec![
            asks("\n"),
            (Role::Assistant, vec![said(" ")], vec![call("1", None)]),
            result("1"),
            asks(""),
            (Role::Assistant, vec![said("so")], Vec::new()),
            asks(" \t"),
        ]),
        ..asked("claude-sonnet-4-6")
    };
    let body = written(&request, &rules("claude-sonnet-4-6", HOST), HOST);
    for block in blocks(&body) {
        let text = block["text"].as_str();
        assert!(text.is_none_or(|text| !text.trim().is_empty()), "{body}");
    }
    assert_eq!(kinds(&body["messages"][1]), ["tool_use"]);
    for message in body["messages"].as_array().expect("messages") {
        let content = &message["content"];
        assert!(
            content.as_array().is_none_or(|it| !it.is_empty()) && content != "",
            "{body}"
        );
    }
}

#[test]
fn a_thought_of_which_only_the_signature_is_known_goes_back_with_its_empty_text() {
    // langchain-ai/langchain#38765: without the member the request is refused.
    let hidden = ContentPart::Reasoning {
        text: String::new(),
        signature: Some(Signature::Thinking("c2ln").store()),
        origin: Some(Box::new(origin(HOST))),
    };
    let request = Request {
        messages: messages(vec![
            asks("q"),
            (Role::Assistant, vec![hidden], vec![call("1", Some(1))]),
            result("1"),
        ]),
        ..asked("m")
    };
    let body = written(&request, &Rules::default(), HOST);
    assert_eq!(
        body["messages"][1]["content"][0],
        json!({ "type": "thinking", "thinking": "", "signature": "c2ln" })
    );
}

#[test]
fn a_thought_without_a_signature_is_none_to_the_vendor_that_checks_them() {
    // nextlevelbuilder/goclaw#566: "thinking.signature: Field required".
    let unsigned = ContentPart::Reasoning {
        text: "hm".to_owned(),
        signature: None,
        origin: Some(Box::new(origin(HOST))),
    };
    let request = Request {
        messages: messages(vec![
            asks("q"),
            (Role::Assistant, vec![unsigned], vec![call("1", Some(1))]),
            result("1"),
        ]),
        ..asked("claude-opus-5")
    };
    let body = written(&request, &rules("claude-opus-5", HOST), HOST);
    assert!(
        blocks(&body).all(|block| block["type"] != "thinking" || block["signature"].is_string()),
        "{body}"
    );
}

#[test]
fn thinking_and_a_tool_that_must_be_used_are_not_asked_for_together() {
    // mastra-ai/mastra#7507, can1357/oh-my-pi#341, BerriAI/litellm#17129.
    for model in [
        "claude-sonnet-4-20250514",
        "claude-sonnet-4-6",
        "claude-opus-5",
    ] {
        for choice in [ToolChoice::Required, ToolChoice::Tool("act".to_owned())] {
            let request = Request {
                messages: messages(vec![asks("q")]),
                tools: vec![tool()],
                tool_choice: choice,
                reasoning_effort: Some(ReasoningEffort::High),
                ..asked(model)
            };
            let body = written(&request, &rules(model, HOST), HOST);
            let thinks = matches!(
                body["thinking"]["type"].as_str(),
                Some("enabled" | "adaptive")
            );
            let forced = matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool"));
            assert!(!(thinks && forced), "{model}: {body}");
        }
    }
}
