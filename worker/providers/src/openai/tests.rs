use std::collections::BTreeMap;

use mainspring_runtime::SystemClock;
use mainspring_shared::agent::ReasoningEffort;
use mainspring_worker::llm::{Share, ToolSpec};
use serde_json::{Value, json};

use super::*;
use crate::answer::tests::request;
use crate::open::made;
use crate::rules::{RuleSettings, Said, ToolsAtResponses};

/// A request with a tool.
fn armed(model: &str, effort: Option<ReasoningEffort>) -> Request {
    Request {
        model: model.to_owned(),
        reasoning_effort: effort,
        temperature: Some(0.5),
        stop: vec!["END".to_owned()],
        tools: vec![Arc::new(ToolSpec {
            name: "read".to_owned(),
            description: "Reads.".to_owned(),
            parameters: json!({"type": "object", "properties": {}}),
        })],
        ..request()
    }
}

fn of_all(said: Said) -> RuleSettings {
    RuleSettings {
        by_model: BTreeMap::from([("*".to_owned(), said)]),
        ..RuleSettings::default()
    }
}

/// The request as it would go out.
fn wire(base_url: &str, rules: RuleSettings, request: &Request) -> Value {
    // May be installed already, by this or another test.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = ProviderSettings {
        base_url: base_url.to_owned(),
        rules,
        ..ProviderSettings::new("main", Kind::OpenAi)
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let model = made(&settings, &Share::default(), &clock).expect("a provider");
    let body = model.wire(request).expect("a body").expect("a request");
    serde_json::from_slice(&body).expect("JSON")
}

fn is_for_responses(body: &Value) -> bool {
    assert_ne!(body["input"].is_array(), body["messages"].is_array());
    body["input"].is_array()
}

#[test]
fn models_that_take_tools_only_at_responses_go_there_by_themselves() {
    let openai = "https://api.openai.com/v1";
    let goes = |model: &str, effort| {
        is_for_responses(&wire(
            openai,
            RuleSettings::default(),
            &armed(model, effort),
        ))
    };
    let off = Some(ReasoningEffort::None);
    for model in ["gpt-5.4", "gpt-5.5", "gpt-5.6-sol"] {
        assert!(
            goes(model, None) && goes(model, Some(ReasoningEffort::High)),
            "{model}"
        );
        assert!(!goes(model, off), "{model}");
    }
    for model in ["gpt-6-astra", "gpt-6.1-sol"] {
        assert!(goes(model, None) && goes(model, off), "{model}");
    }
    for model in ["gpt-5-mini", "gpt-5.1", "gpt-4.1"] {
        assert!(!goes(model, None), "{model}");
    }
    let bare = Request {
        tools: Vec::new(),
        ..armed("gpt-5.6-sol", None)
    };
    assert!(!is_for_responses(&wire(
        openai,
        RuleSettings::default(),
        &bare
    )));
}

#[test]
fn an_operator_decides_otherwise_and_routers_route_by_themselves() {
    let stay = Said {
        tools_at_responses: Some(ToolsAtResponses::Never),
        ..Said::default()
    };
    let said = of_all(stay);
    let request = armed("gpt-5.6-sol", None);
    assert!(!is_for_responses(&wire(
        "https://gateway.example/v1",
        said,
        &request
    )));
    let router = wire(
        "https://openrouter.ai/api/v1",
        RuleSettings::default(),
        &request,
    );
    assert!(!is_for_responses(&router));
    let like = Said {
        like: Some("gpt-6-astra".to_owned()),
        ..Said::default()
    };
    let said = RuleSettings {
        by_model: BTreeMap::from([("prod".to_owned(), like)]),
        ..RuleSettings::default()
    };
    let azure = wire(
        "https://me.openai.azure.com/openai/v1",
        said,
        &armed("prod", None),
    );
    assert!(is_for_responses(&azure));
}

#[test]
fn each_member_that_an_operator_sets_is_what_goes_out() {
    let text = r#"
        output_limit = "max_completion_tokens"
        temperature = "none"
        stop = false
        system = "developer"
        efforts = ["low"]
        tool_description_max = 3
    "#;
    let all: Said = toml::from_str(text).expect("members");
    let said = of_all(all);
    let request = armed("m", Some(ReasoningEffort::Max));
    let body = wire("http://10.0.0.7:9/v1", said, &request);
    assert_eq!(body["max_completion_tokens"], 16);
    assert_eq!(
        (&body["temperature"], &body["stop"], &body["max_tokens"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(body["messages"][0]["role"], "developer");
    assert_eq!(body["reasoning_effort"], "low");
    assert_ne!(body["tools"][0]["function"]["description"], "Reads.");
    let unknown = wire("http://10.0.0.7:9/v1", RuleSettings::default(), &request);
    assert_eq!(unknown["reasoning_effort"], "max");
    assert_eq!(unknown["max_tokens"], 16);
}
