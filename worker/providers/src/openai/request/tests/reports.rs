//! Requests of chat completions that a vendor refused, as users of comparable programs reported.

use mainspring_shared::message::Arguments;

use super::*;

fn roles(body: &Value) -> Vec<&str> {
    let list = body["messages"].as_array().expect("messages");
    list.iter()
        .map(|message| message["role"].as_str().expect("a role"))
        .collect()
}

#[test]
fn only_its_own_vendor_is_sent_the_role_developer() {
    // earendil-works/pi#1048, NeuroAIHub/BrainPilot#549, vastsa/PI-Desktop#30, QuantumNous/new-api#5330.
    for (host, model) in [
        ("api.deepseek.com", "deepseek-v4-flash"),
        (
            "token-plan.cn-beijing.maas.aliyuncs.com",
            "deepseek-v4-flash-0731",
        ),
        ("platform.aimom.net", "glm-5.3-flash"),
        ("gateway.example", "gpt-5.4"),
        ("openrouter.ai", "qwen/qwen3.7-max"),
    ] {
        let body = sent(host, &everything(model, "elsewhere.example"));
        assert!(!roles(&body).contains(&"developer"), "{host} {model}");
    }
}

#[test]
fn there_is_one_system_message_and_it_is_the_first() {
    // QwenLM/Qwen3.8#244, vllm-project/vllm#44505: templates refuse any other.
    for (host, model) in [
        ("localhost:8080", "qwen3.8-27b"),
        ("10.0.0.7:8000", "Qwen/Qwen3.6-27B"),
        ("openrouter.ai", "qwen/qwen3.7-max"),
    ] {
        let body = sent(host, &everything(model, "elsewhere.example"));
        let roles = roles(&body);
        let places: Vec<usize> = (0..roles.len())
            .filter(|at| roles[*at] == "system")
            .collect();
        assert_eq!(places, [0], "{host} {model}: {roles:?}");
    }
}

#[test]
fn what_is_told_last_is_told_behind_the_last_answer() {
    // aaif-goose/goose#7425: a note before the answer leaves the answer last, and Claude refuses that.
    let said = message(
        Role::Assistant,
        vec![ContentPart::text("I look.")],
        Vec::new(),
        None,
    );
    let request = Request {
        tail: Some("It is late.".to_owned()),
        ..asking("anthropic/claude-sonnet-4.6", vec![user("q"), said])
    };
    let body = sent("openrouter.ai", &request);
    assert_eq!(roles(&body).last(), Some(&"user"));
    assert_eq!(body["messages"][2]["content"].as_str(), Some("It is late."));
}

#[test]
fn arguments_that_are_no_json_go_back_as_an_object() {
    for (source, said) in [
        // vLLM and llama-server read each call of the history, and refuse the request for a broken one.
        (
            "OpenHands/software-agent-sdk#2887",
            r#"{"path": "a", "text": "unfini"#,
        ),
        ("local-inference-lab/vllm#684", r#"{"value": "#),
        ("huggingface/physics-intern#6", r#"{"q": "a \d"}"#),
        (
            "NousResearch/hermes-agent#79333",
            "```json\n{\"path\": \"a\"}\n```",
        ),
        ("bytedance/deer-flow#4445", r#"{"path": "a"}"#),
    ] {
        let call = ToolCall::new("call_a", "read", Arguments::read(said));
        let messages = vec![
            user("q"),
            message(Role::Assistant, Vec::new(), vec![call], None),
            result("call_a", vec![ContentPart::text("error: no JSON")]),
        ];
        let body = sent("localhost:8000", &asking("qwen3", messages));
        let given = &body["messages"][1]["tool_calls"][0]["function"]["arguments"];
        let text = given.as_str().expect("a text, as the protocol has it");
        let read: Value = serde_json::from_str(text).expect(source);
        // Nothing of what the model said is lost to it.
        let meant = serde_json::from_str(said).unwrap_or_else(|_| json!({ "arguments": said }));
        assert_eq!(read, meant, "{source}");
    }
}

#[test]
fn an_answer_of_calls_has_no_empty_text() {
    // NousResearch/hermes-agent#11929: gateways make an empty block of Anthropic's of it, which is refused.
    let calls = vec![call_of("elsewhere.example", "call_a", "x", None)];
    let messages = vec![
        user("q"),
        message(Role::Assistant, vec![ContentPart::text(" \n")], calls, None),
        result("call_a", vec![ContentPart::text("r")]),
    ];
    let body = sent("gateway.example", &asking("claude-opus-5", messages));
    assert_eq!(body["messages"][1]["content"], Value::Null);
}

#[test]
fn a_tool_is_not_demanded_of_models_that_think() {
    // cloudwego/eino#994, freelensapp/freelens-ai-extension#122: both refuse "required" and a tool's name.
    for (host, model) in [
        ("dashscope.aliyuncs.com", "qwen3.5-plus"),
        ("api.deepseek.com", "deepseek-v4-flash"),
    ] {
        let request = Request {
            tools: vec![read()],
            tool_choice: ToolChoice::Required,
            ..asking(model, vec![user("q")])
        };
        let choice = &sent(host, &request)["tool_choice"];
        assert!(
            choice.is_null() || choice == "auto",
            "{host} {model}: {choice}"
        );
    }
}

#[test]
fn a_picture_is_sent_as_what_its_bytes_are() {
    // google-gemini/gemini-cli#27731, llmsresearch/paperbanana#58, shaun0927/openchrome#1487.
    for (said, data, kind) in [
        ("image/png", "UklGRiQAAABXRUJQVlA4IBgAAAA=", "image/webp"),
        ("image/png", "/9j/4AAQSkZJRgABAQAAAQABAAD/", "image/jpeg"),
        ("image/webp", "iVBORw0KGgoAAAANSUhEUgAAAAE=", "image/png"),
        ("image/png", "R0lGODlhAQABAIAAAAAAAP///yH5", "image/gif"),
        ("image/webp", "UklGRiQAAABXQVZFZm10IBAAAAA=", "image/webp"),
        ("image/png", "AAAA", "image/png"),
    ] {
        let source = ImageSource::Base64 {
            media_type: said.to_owned(),
            data: data.to_owned(),
        };
        let image = ContentPart::Image { source };
        let asked = message(Role::User, vec![image], Vec::new(), None);
        let body = sent("gateway.example", &asking("claude-opus-5", vec![asked]));
        let url = &body["messages"][0]["content"][0]["image_url"]["url"];
        assert_eq!(*url, json!(format!("data:{kind};base64,{data}")));
    }
}
