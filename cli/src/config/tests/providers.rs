//! Settings of providers and facts of models.

use super::*;

#[test]
fn the_default_provider_follows_what_is_there() {
    let kind = |pairs: &[(&str, &str)]| {
        let llm = load(pairs).llm;
        let key = llm
            .api_key
            .map_or(String::new(), |key| key.reveal().to_owned());
        format!(
            "{} {key} {}",
            llm.kind.as_str(),
            llm.model.unwrap_or_default()
        )
    };
    assert_eq!(kind(&[]), "demo  demo");
    assert_eq!(kind(&[("OPENAI_API_KEY", "o")]), "openai o gpt-5-mini");
    assert_eq!(
        kind(&[("ANTHROPIC_API_KEY", "a")]),
        "anthropic a claude-sonnet-4-5"
    );
    let both = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o")];
    assert_eq!(kind(&both), "openai o gpt-5-mini");
    let anthropic = [both[0], both[1], ("MAINSPRING_LLM_PROVIDER", "anthropic")];
    assert_eq!(kind(&anthropic), "anthropic a claude-sonnet-4-5");
    let demo = [both[0], ("MAINSPRING_LLM_PROVIDER", "demo")];
    assert_eq!(kind(&demo), "demo  demo");
    let local = [("MAINSPRING_LLM_BASE_URL", "http://127.0.0.1:1/v1")];
    assert_eq!(kind(&local), "openai  ");
}

#[test]
fn the_other_programs_names_count_unless_they_are_for_another_provider() {
    let theirs = [
        ("POWER_LOOP_PROVIDER", "claude"),
        ("POWER_LOOP_BASE_URL", "https://example.org/v1"),
        ("POWER_LOOP_API_KEY", "p"),
        ("POWER_LOOP_MODEL", "m"),
    ];
    let llm = load(&theirs).llm;
    assert_eq!(llm.kind, ProviderKind::Anthropic);
    assert_eq!(llm.base_url.as_deref(), Some("https://example.org/v1"));
    assert_eq!(
        (llm.api_key, llm.model.as_deref()),
        (Some(Secret::new("p")), Some("m"))
    );
    let mut with_ours = theirs.to_vec();
    with_ours.push(("MAINSPRING_LLM_MODEL", "ours"));
    assert_eq!(load(&with_ours).llm.model.as_deref(), Some("ours"));
    with_ours.push(("MAINSPRING_LLM_PROVIDER", "openai"));
    let llm = load(&with_ours).llm;
    assert_eq!((llm.base_url, llm.api_key), (None, None));
}

#[test]
fn a_named_provider_needs_its_kind_and_inherits_the_rest() {
    let file = "[llm]\nidle_timeout = \"7s\"\n[providers.fast]\nprovider = \"demo\"\n";
    let config = load_with(Some(file), &[], &[]).expect("good");
    assert_eq!(
        config.providers["fast"].idle_timeout,
        Duration::from_secs(7)
    );
    let found = problems(load_with(
        Some("[providers.fast]\nmodel = \"m\"\n"),
        &[],
        &[],
    ));
    assert_eq!(found[0].0, "config.missing");
    let elsewhere = "[providers.x]\nprovider = \"openai\"\nbase_url = \"http://x/v1\"\n";
    let config = load_with(Some(elsewhere), &[("OPENAI_API_KEY", "o")], &[]).expect("good");
    assert_eq!(config.providers["x"].api_key, None);
}

#[test]
fn the_provider_that_is_printed_says_what_decided_on_it() {
    let origin = |pairs: &[(&str, &str)]| {
        let config = load(pairs);
        let line = config
            .print()
            .lines()
            .find(|line| line.starts_with("provider = "));
        line.map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(origin(&[]), "provider = \"demo\"  # the defaults");
    for (name, value, kind) in [
        ("MAINSPRING_LLM_PROVIDER", "anthropic", "anthropic"),
        ("POWER_LOOP_PROVIDER", "claude", "anthropic"),
        ("MAINSPRING_LLM_BASE_URL", "http://x/v1", "openai"),
        ("MAINSPRING_LLM_API_KEY", "sk", "openai"),
        ("ANTHROPIC_API_KEY", "sk", "anthropic"),
    ] {
        let expected = format!("provider = \"{kind}\"  # {name}");
        assert_eq!(origin(&[(name, value)]), expected);
    }
}

#[test]
fn a_key_that_is_missing_is_asked_for_by_the_names_of_its_variables() {
    let openai = load(&[("MAINSPRING_LLM_PROVIDER", "openai")]);
    let problems = openai.validate(Purpose::Dev);
    let detail = problems.first().map_or("", |problem| &problem.detail);
    for name in ["OPENAI_API_KEY", "MAINSPRING_LLM_API_KEY"] {
        assert!(detail.contains(name), "{name}: {detail}");
    }
}

#[test]
fn a_provider_takes_further_members_for_its_requests() {
    let file = "[providers.a]\nprovider = \"demo\"\nrequest_extra = '{\"tier\": \"flex\"}'\n\
                model_extra = { \"gpt-4.1\" = '{\"tier\": \"fast\"}' }\nbreaker_pause = \"3s\"\n";
    let config = load_with(Some(file), &[], &[]).expect("good");
    let provider = &config.providers["a"];
    assert!(provider.model_extra.contains_key("gpt-4.1"));
    assert_eq!(provider.breaker_pause, Duration::from_secs(3));
    assert_eq!(provider.breaker_failures, config.llm.breaker_failures);
    let origins = |value: &str| {
        let file = format!("[llm]\nprovider = \"demo\"\nrequest_extra = '{value}'\n");
        let config = load_with(Some(&file), &[], &[]).expect("it is a text");
        let problems = config.validate(Purpose::Database).into_iter();
        let origins = problems.map(|problem| problem.origin);
        origins.collect::<Vec<_>>()
    };
    assert_eq!(origins("{\"seed\": 7}"), Vec::<String>::new());
    for refused in ["[1]", "{\"model\": \"x\"}"] {
        assert_eq!(origins(refused), ["llm.request_extra"], "{refused}");
    }
}

#[test]
fn facts_of_models_are_read_with_all_their_members() {
    let file = r#"
        [models."local/llama3.1"]
        window = 8192
        input_max = 6000
        output_max = 2048
        input = ["image"]
        native_schema = false
        thinking = "never"
        adaptive = true
        tokens = 1.1
        price = { input = 1, output = 2.5, cache_read = 0.5, cache_write = 1.25, long = { above = 4096, input = 2, output = 1.5 } }
        [models.small]
        window = 4096
    "#;
    let config = load_with(Some(file), &[], &[]).expect("a good configuration");
    let facts = &config.models.0["local/llama3.1"];
    assert_eq!((facts.window, facts.tokens), (Some(8192), Some(1.1)));
    assert_eq!(facts.input.as_ref().map(Vec::len), Some(1));
    let price = facts.price.expect("a price");
    assert!((price.output - 2.5).abs() < 1e-9 && price.long.is_some());
    assert_eq!(config.models.0["small"].window, Some(4096));
    assert!(
        config.print().contains("\"local/llama3.1\" = { "),
        "{}",
        config.print()
    );
}

#[test]
fn what_is_no_fact_of_a_model_is_refused() {
    for (line, detail) in [
        ("windows = 1", "has no windows; it may have window,"),
        ("window = 0", "at window takes a whole number from 1"),
        (
            "input = [\"smell\"]",
            "at input takes a list of some of: image, pdf, audio",
        ),
        (
            "thinking = \"often\"",
            "at thinking takes one of: never, optional, always",
        ),
        ("price = { input = 1 }", "at price needs output"),
        (
            "tokens = -1",
            "at tokens takes a number that is not negative",
        ),
    ] {
        let file = format!("[models.m]\n{line}\n");
        let found = problems(load_with(Some(&file), &[], &[]));
        let detail = format!("models.m {detail}");
        assert!(found[0].1.starts_with(&detail), "{found:?}");
    }
}
