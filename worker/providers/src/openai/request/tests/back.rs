//! What goes back to the vendor that gave it.

use super::*;

/// Vendor, host, model, the member in which reasoning came, and the one in which it goes back.
const GOES_BACK: &[[&str; 5]] = &[
    ["", "api.openai.com", "gpt-5", "reasoning_content", ""],
    [
        "",
        "api.groq.com",
        "openai/gpt-oss-120b",
        "reasoning",
        "reasoning",
    ],
    ["", "api.groq.com", "llama-3.3-70b", "reasoning", ""],
    [
        "",
        "api.cerebras.ai",
        "gpt-oss-120b",
        "reasoning",
        "reasoning",
    ],
    [
        "",
        "api.deepseek.com",
        "deepseek-v4-pro",
        "reasoning_content",
        "reasoning_content",
    ],
    [
        "",
        "api.moonshot.ai",
        "kimi-k2.5",
        "reasoning_content",
        "reasoning_content",
    ],
    ["", "openrouter.ai", "m", "reasoning", "reasoning"],
    ["", "somewhere.example", "m", "reasoning", "reasoning"],
    [
        "",
        "somewhere.example",
        "m",
        "reasoning_content",
        "reasoning_content",
    ],
    [
        "vllm",
        "10.0.0.7",
        "MiniMax-M2",
        "reasoning_content",
        "reasoning",
    ],
    ["ollama", "10.0.0.7", "qwen3", "reasoning", "reasoning"],
    [
        "llamacpp",
        "10.0.0.7",
        "qwen3",
        "reasoning_content",
        "reasoning_content",
    ],
];

#[test]
fn reasoning_goes_back_under_the_name_that_its_vendor_reads_and_to_nobody_else() {
    let turns = |host: &str, member: &str| {
        let thoughts = vec![thought("hm", Some(origin(host, "m", Some(member))))];
        let calls = vec![call_of(host, "call_a", "own:1", None)];
        vec![
            user("q"),
            message(Role::Assistant, thoughts, calls, None),
            result("call_a", vec![ContentPart::text("r")]),
        ]
    };
    for &[vendor, host, model, member, goes] in GOES_BACK {
        let vendor = Some(vendor).filter(|vendor| !vendor.is_empty());
        let body = sent_as(vendor, host, &asking(model, turns(host, member)), true);
        let answer = &body["messages"][1];
        for name in ["reasoning_content", "reasoning", "reasoning_details"] {
            let wanted = if goes == name {
                json!("hm")
            } else {
                Value::Null
            };
            assert_eq!(answer[name], wanted, "{host} {model} {name}");
        }
        // Of another host nothing goes anywhere, except the empty text that some demand.
        let foreign = sent_as(
            vendor,
            host,
            &asking(model, turns("elsewhere.example", member)),
            true,
        );
        assert!(!foreign.to_string().contains("hm"), "{foreign}");
    }
    let mistral = sent(
        "api.mistral.ai",
        &asking("magistral", turns("api.mistral.ai", "content")),
    );
    assert_eq!(
        mistral["messages"][1]["content"],
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": true}])
    );
}

#[test]
fn turns_without_reasoning_have_the_empty_one_that_deepseek_and_kimi_demand() {
    let calls = vec![call_of("elsewhere.example", "call_a", "x", None)];
    let messages = vec![
        user("q"),
        message(Role::Assistant, Vec::new(), calls, None),
        result("call_a", vec![ContentPart::text("r")]),
        message(
            Role::Assistant,
            vec![ContentPart::text("done")],
            Vec::new(),
            None,
        ),
        user("q"),
    ];
    let deepseek = sent(
        "api.deepseek.com",
        &asking("deepseek-v4-flash", messages.clone()),
    );
    assert_eq!(deepseek["messages"][1]["reasoning_content"], "");
    assert_eq!(deepseek["messages"][3]["reasoning_content"], "");
    let kimi = sent("api.moonshot.ai", &asking("kimi-k2.6", messages.clone()));
    assert_eq!(kimi["messages"][1]["reasoning_content"], "");
    assert_eq!(kimi["messages"][3]["reasoning_content"], Value::Null);
    let other = sent("api.fireworks.ai", &asking("m", messages));
    assert!(!other.to_string().contains("reasoning_content"));
}

#[test]
fn what_a_vendor_attaches_comes_back_to_the_byte() {
    let google = "generativelanguage.googleapis.com";
    let signature = r#"{"extra_content":{"google":{"thought_signature":"s1", "n":1.50}}}"#;
    let calls = |host: &str| {
        vec![
            call_of(host, "call_a", "", Some(signature)),
            call_of(host, "call_b", "", None),
        ]
    };
    let turn = |host: &str| {
        let results = ["call_a", "call_b"].map(|id| result(id, vec![ContentPart::text("r")]));
        let answer = message(Role::Assistant, Vec::new(), calls(host), None);
        let [a, b] = results;
        vec![user("q"), answer, a, b]
    };
    let said = RuleSettings::default();
    let rules = RuleBook::new(Kind::OpenAi, google, None, &said).of("gemini-3.5-flash");
    let place = Place {
        host: google,
        rules: &rules,
        native_schema: true,
        stream: true,
    };
    let body = body(&asking("gemini-3.5-flash", turn(google)), place).expect("a request");
    let text = String::from_utf8(body).expect("text");
    assert!(
        text.contains(r#""extra_content":{"google":{"thought_signature":"s1", "n":1.50}}"#),
        "{text}"
    );
    assert!(!text.contains("skip_thought_signature_validator"));

    let foreign = sent(
        google,
        &asking("gemini-3.5-flash", turn("elsewhere.example")),
    );
    let calls = &foreign["messages"][1]["tool_calls"];
    assert_eq!(
        calls[0]["extra_content"]["google"]["thought_signature"],
        "skip_thought_signature_validator"
    );
    assert_eq!(calls[1]["extra_content"], Value::Null);
    let older = sent(google, &asking("gemini-2.5-pro", turn("elsewhere.example")));
    assert!(!older.to_string().contains("extra_content"));
}

#[test]
fn reasoning_details_go_back_whole_to_the_model_that_gave_them() {
    let details =
        r#"[{"type":"reasoning.encrypted","data":"x","format":"google-gemini-v1","index":0}]"#;
    let content = |host: &str| {
        vec![
            thought("hm", Some(origin(host, "m", Some("reasoning")))),
            attached(host, "reasoning_details", details),
            attached(host, "content", r#""not the reader's to attach""#),
        ]
    };
    let ask = |host: &str, from: &str, model: &str| {
        let calls = vec![call_of(from, "call_a", "x", None)];
        let answer = message(Role::Assistant, content(from), calls, None);
        let messages = vec![
            user("q"),
            answer,
            result("call_a", vec![ContentPart::text("r")]),
        ];
        sent(host, &asking(model, messages))["messages"][1].clone()
    };
    let own = ask("openrouter.ai", "openrouter.ai", "m");
    assert_eq!(
        own["reasoning_details"].to_string(),
        serde_json::from_str::<Value>(details)
            .expect("JSON")
            .to_string()
    );
    assert_eq!(
        (&own["reasoning"], &own["content"]),
        (&Value::Null, &Value::Null)
    );
    for (from, model) in [("elsewhere.example", "m"), ("openrouter.ai", "another")] {
        let other = ask("openrouter.ai", from, model);
        assert_eq!(
            (&other["reasoning_details"], &other["reasoning"]),
            (&Value::Null, &Value::Null)
        );
    }
}

#[test]
fn results_have_the_ids_of_their_calls_in_each_vendors_form() {
    for (host, model, fits) in [
        (
            "api.mistral.ai",
            "devstral",
            (|id: &str| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()))
                as fn(&str) -> bool,
        ),
        ("api.openai.com", "gpt-4.1", |id| id.len() <= 40),
        ("me.openai.azure.com", "prod", |id| id.len() <= 40),
        ("api.moonshot.ai", "kimi-k2-0905", |id| {
            id.starts_with("functions.read:")
        }),
        ("openrouter.ai", "moonshotai/kimi-k2.5", |id| {
            id.starts_with("functions.read:")
        }),
    ] {
        let body = sent(host, &everything(model, "elsewhere.example"));
        let messages = body["messages"].as_array().expect("messages");
        let calls: Vec<&str> = messages
            .iter()
            .flat_map(|it| it["tool_calls"].as_array().into_iter().flatten())
            .filter_map(|call| call["id"].as_str())
            .collect();
        let results: Vec<&str> = messages
            .iter()
            .filter_map(|it| it["tool_call_id"].as_str())
            .collect();
        assert_eq!(calls, results, "{host}");
        assert_eq!(calls.len(), 2);
        assert!(calls.iter().all(|id| fits(id)), "{host} {calls:?}");
        assert_ne!(calls[0], calls[1]);
    }
    let own = vec![call_of(
        "api.moonshot.ai",
        "call_a",
        "functions.read:7",
        None,
    )];
    let messages = vec![
        user("q"),
        message(Role::Assistant, Vec::new(), own, None),
        result("call_a", Vec::new()),
    ];
    let body = sent("api.moonshot.ai", &asking("kimi-k2.5", messages));
    assert_eq!(
        body["messages"][1]["tool_calls"][0]["id"],
        "functions.read:7"
    );
    assert_eq!(body["messages"][2]["tool_call_id"], "functions.read:7");
}
