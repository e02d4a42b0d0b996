use mainspring_shared::agent::ReasoningEffort;

use super::*;

fn book(kind: Kind, host: &str, said: &RuleSettings) -> RuleBook {
    RuleBook::new(kind, host, None, said)
}

fn rules(host: &str, model: &str) -> Arc<Rules> {
    book(Kind::OpenAi, host, &RuleSettings::default()).of(model)
}

fn claude(model: &str) -> Arc<Rules> {
    let said = RuleSettings::default();
    book(Kind::Anthropic, "api.anthropic.com", &said).of(model)
}

#[test]
fn every_entry_is_read_has_a_source_and_a_day_and_says_something() {
    assert!(ENTRIES.len() > 60);
    for entry in ENTRIES.iter() {
        assert!(entry.source.len() > 3, "{entry:?}");
        let date: Vec<&str> = entry.date.split('-').collect();
        assert!(
            matches!(date.as_slice(), [year, month, ..] if year.len() == 4 && month.len() == 2),
            "{entry:?}"
        );
        assert_ne!(entry.says, Said::default(), "{entry:?}");
        assert!(entry.says.like.is_none(), "{entry:?}");
        for protocol in &entry.protocol {
            assert!(Kind::parse(protocol).is_some(), "{entry:?}");
        }
        for pattern in entry.model.iter().chain(&entry.host) {
            assert_eq!(*pattern, pattern.to_ascii_lowercase(), "{entry:?}");
        }
        for pattern in &entry.host {
            // The whole of a vendor, or a port of this machine; never any host.
            let letters = pattern.chars().filter(char::is_ascii_alphanumeric).count();
            assert!(letters >= 4, "{pattern}");
        }
        // Each pattern is of a model that it is laid for.
        for pattern in &entry.model {
            let sample = pattern.replace('*', "");
            assert!(entry.is_for(&names(&sample)), "{pattern}");
            assert!(sample.len() > 1, "{pattern} is of all models");
        }
    }
}

#[test]
fn no_member_of_an_operator_goes_unread() {
    let said = RuleSettings {
        by_model: BTreeMap::from([
            (
                "*".to_owned(),
                Said {
                    stop: Some(false),
                    ..Said::default()
                },
            ),
            (
                "gpt-5*".to_owned(),
                Said {
                    temperature: Some(Sampling::Any),
                    ..Said::default()
                },
            ),
            (
                "gpt-5-mini".to_owned(),
                Said {
                    stop: Some(true),
                    ..Said::default()
                },
            ),
            (
                "prod".to_owned(),
                Said {
                    like: Some("gpt-5-mini".to_owned()),
                    ..Said::default()
                },
            ),
        ]),
        ..RuleSettings::default()
    };
    let book = book(Kind::OpenAi, "api.openai.com", &said);
    assert!(!book.of("gpt-4.1").stop);
    let mini = book.of("openai/gpt-5-mini-2025-08-07");
    assert_eq!((mini.temperature, mini.stop), (Sampling::Any, true));
    assert_eq!(book.of("gpt-5").temperature, Sampling::Any);
    let prod = book.of("prod");
    assert_eq!(
        (prod.temperature, prod.top_p),
        (Sampling::None, Sampling::None)
    );
}

#[test]
fn an_operator_names_the_server_where_the_host_does_not_tell() {
    let named = |vendor: &str| RuleSettings {
        vendor: Some(vendor.to_owned()),
        ..RuleSettings::default()
    };
    let vllm = book(Kind::OpenAi, "10.0.0.7", &named("vllm")).of("MiniMax-M2");
    assert_eq!(vllm.reasoning_back, ReasoningBack::Reasoning);
    assert_eq!(
        rules("10.0.0.7", "MiniMax-M2").reasoning_back,
        ReasoningBack::AsItCame
    );
    let behind = book(Kind::OpenAi, "proxy.internal", &named("mistral")).of("devstral");
    assert_eq!(behind.call_ids, CallIds::Nine);
    let ollama = RuleBook::new(
        Kind::OpenAi,
        "localhost",
        Some(11_434),
        &RuleSettings::default(),
    );
    assert_eq!(ollama.of("qwen3").reasoning_back, ReasoningBack::Reasoning);
    let mut vendors: Vec<_> = ENTRIES.iter().filter_map(|e| e.vendor.as_deref()).collect();
    vendors.sort_unstable();
    vendors.dedup();
    assert_eq!(vendors, VENDORS);
}

#[test]
fn the_limit_of_an_answer_is_called_by_the_model_and_the_host() {
    let limit = |host: &str, model: &str| rules(host, model).output_limit;
    for (host, model) in [
        ("api.openai.com", "gpt-4.1"),
        ("eu.api.openai.com", "gpt-5-mini"),
        ("me.openai.azure.com", "gpt-5-mini"),
        ("me.openai.azure.com", "prod"),
        ("10.0.0.7", "openai/gpt-5-mini"),
        ("proxy.internal", "o4-mini"),
    ] {
        assert_eq!(
            limit(host, model),
            OutputLimit::MaxCompletionTokens,
            "{host} {model}"
        );
    }
    for (host, model) in [
        ("me.openai.azure.com", "gpt-35-turbo"),
        ("me.openai.azure.com", "gpt-4-turbo"),
        ("api.mistral.ai", "devstral-2512"),
        ("api.deepseek.com", "deepseek-v4-pro"),
        ("localhost", "llama3"),
    ] {
        assert_eq!(limit(host, model), OutputLimit::MaxTokens, "{host} {model}");
    }
}

#[test]
fn an_effort_becomes_the_nearest_that_is_accepted() {
    use ReasoningEffort::{High, Low, Max, Medium, Minimal, None as Off, XHigh};
    let openai = "api.openai.com";
    for (host, model, wanted, sent) in [
        (openai, "o3", XHigh, Some(High)),
        (openai, "o3", Off, Some(Low)),
        (openai, "gpt-5", Off, Some(Minimal)),
        (openai, "gpt-5", Max, Some(High)),
        (openai, "gpt-5.1", Minimal, Some(Low)),
        (openai, "gpt-5.1", Off, Some(Off)),
        (openai, "gpt-5.5", Max, Some(XHigh)),
        (openai, "gpt-5.6-sol", Max, Some(XHigh)),
        (openai, "gpt-6-astra", Off, Some(Minimal)),
        (openai, "gpt-6.1-sol", Off, Some(Low)),
        (openai, "gpt-4.1", High, None),
        (openai, "gpt-4o-mini", Low, None),
        ("api.x.ai", "grok-4.5", Off, Some(Low)),
        ("api.x.ai", "grok-4.5", XHigh, Some(High)),
        ("api.x.ai", "grok-4.6", XHigh, Some(XHigh)),
        ("api.x.ai", "grok-4", Low, None),
        ("api.x.ai", "grok-4-fast", Low, None),
        ("api.x.ai", "grok-4.20", Low, None),
        ("api.moonshot.ai", "kimi-k3", Medium, Some(Low)),
        ("api.groq.com", "qwen/qwen3-32b", Off, Some(Off)),
        ("api.groq.com", "qwen/qwen3-32b", High, None),
        ("api.groq.com", "llama-3.3-70b-versatile", High, None),
        ("somewhere.example", "unknown", Max, Some(Max)),
    ] {
        assert_eq!(
            rules(host, model).effort(wanted),
            sent,
            "{host} {model} {wanted:?}"
        );
    }
    let responses = book(Kind::OpenAiResponses, openai, &RuleSettings::default());
    assert_eq!(responses.of("gpt-5.6-sol").effort(Max), Some(Max));
}

#[test]
fn a_model_that_takes_tools_only_at_responses_is_known_anywhere() {
    let needs = |model: &str, effort| rules("gateway.example", model).needs_responses(effort);
    let off = Some(ReasoningEffort::None);
    for model in ["gpt-5.4", "gpt-5.5", "gpt-5.6-terra"] {
        assert!(
            needs(model, None) && needs(model, Some(ReasoningEffort::Low)),
            "{model}"
        );
        assert!(!needs(model, off), "{model}");
    }
    for model in ["gpt-6-astra", "gpt-6.1-sol"] {
        assert!(needs(model, None) && needs(model, off), "{model}");
    }
    for model in ["gpt-5", "gpt-5-mini", "gpt-5.1", "gpt-4.1", "o3", "llama-3"] {
        assert!(!needs(model, None), "{model}");
    }
}

#[test]
fn an_unknown_claude_decides_by_itself_how_much_it_thinks() {
    for model in [
        "claude-opus-6",
        "claude-opus-4-7",
        "claude-opus-5",
        "anthropic.claude-opus-4-8-v1:0",
        "claude-opus-4-8@20260528",
    ] {
        let rules = claude(model);
        assert_eq!(rules.thinking, ThinkingForm::Adaptive, "{model}");
        assert_eq!(rules.temperature, Sampling::None, "{model}");
    }
    for model in [
        "claude-opus-4-1-20250805",
        "claude-sonnet-4-20250514",
        "claude-3-7-sonnet-latest",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-opus-4.6",
    ] {
        let rules = claude(model);
        assert_eq!(rules.thinking, ThinkingForm::Budget, "{model}");
        assert_eq!(rules.temperature, Sampling::Any, "{model}");
        assert!(rules.temperature_max <= 1.0, "{model}");
    }
    assert!(!claude("claude-sonnet-4-5").both_samplings);
    for (model, off) in [
        ("claude-opus-5-5-20260901", ThinkingOff::Impossible),
        ("claude-sonnet-5-5", ThinkingOff::BetweenTools),
        ("claude-haiku-5-5", ThinkingOff::Disabled),
        ("claude-fable-5-1", ThinkingOff::Impossible),
    ] {
        let rules = claude(model);
        assert!(rules.thinking_bound && rules.drop_block, "{model}");
        assert_eq!(rules.thinking_off, off, "{model}");
    }
    let gateway = book(Kind::Anthropic, "gateway.example", &RuleSettings::default());
    assert!(!gateway.of("claude-opus-5-5").drop_block);
}

#[test]
fn samplings_are_bounded_or_left_out() {
    let off = Some(ReasoningEffort::None);
    assert_eq!(
        rules("api.openai.com", "gpt-5-mini").temperature(Some(0.0), None),
        None
    );
    let newer = rules("api.openai.com", "gpt-5.1");
    assert_eq!(newer.temperature(Some(0.3), None), None);
    assert_eq!(newer.temperature(Some(0.3), off), Some(0.3));
    assert_eq!(
        rules("api.openai.com", "gpt-6-astra").temperature(Some(0.3), off),
        None
    );
    assert_eq!(
        rules("api.moonshot.ai", "kimi-k2.5").temperature(Some(0.3), None),
        None
    );
    let minimax = rules("api.minimax.io", "MiniMax-M2");
    assert_eq!(minimax.temperature(Some(0.0), None), Some(0.01));
    assert_eq!(minimax.temperature(Some(1.7), None), Some(1.0));
    assert_eq!(
        claude("claude-sonnet-4-5").temperature(Some(2.0), None),
        Some(1.0)
    );
    assert_eq!(
        claude("claude-sonnet-4-5").top_p(Some(0.5), Some(1.0), None),
        None
    );
    assert_eq!(
        claude("claude-sonnet-4-5").top_p(Some(0.5), None, None),
        Some(0.5)
    );
}
