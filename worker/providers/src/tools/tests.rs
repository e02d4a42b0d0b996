use super::*;
use crate::answer::tests::request;

fn spec(name: &str, description: &str, parameters: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
    })
}

fn with(tools: Vec<Arc<ToolSpec>>) -> Request {
    Request { tools, ..request() }
}

fn rules(schema: SchemaDialect) -> Rules {
    Rules {
        schema,
        ..Rules::default()
    }
}

#[test]
fn a_tool_that_cannot_be_expressed_is_left_out_and_the_others_stay() {
    let text = spec("text", "", json!({ "type": "string" }));
    let good = spec("good", "", json!({ "type": "object" }));
    let request = with(vec![text, good]);
    let tools = Tools::of(&request, &rules(SchemaDialect::OpenAi));
    let names: Vec<_> = tools.list().iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["good"]);
    let all = Tools::of(&request, &rules(SchemaDialect::OpenAi));
    assert_eq!(all.list().len(), 1);
}

#[test]
fn no_more_tools_are_offered_than_a_model_takes() {
    let each = (0..200).map(|number| spec(&format!("t{number}"), "", json!({})));
    let request = with(each.collect());
    let mut rules = rules(SchemaDialect::OpenAi);
    rules.tools_max = 128;
    assert_eq!(Tools::of(&request, &rules).list().len(), 128);
}

#[test]
fn a_description_that_is_too_long_goes_on_in_the_schema() {
    let long = format!("{}. {}", "a".repeat(700), "b ".repeat(400));
    let request = with(vec![spec(
        "t",
        &long,
        json!({ "type": "object", "description": "Own." }),
    )]);
    let mut rules = rules(SchemaDialect::OpenAi);
    rules.tool_description_max = 1_024;
    let tools = Tools::of(&request, &rules);
    let [tool] = tools.list() else {
        panic!("it is offered");
    };
    assert!(tool.description.chars().count() <= 1_024);
    assert_eq!(*tool.description, format!("{}.{GOES_ON}", "a".repeat(700)));
    let parameters = tool.parameters().expect("there are some");
    let rest = parameters["description"].as_str().expect("a text");
    assert!(rest.starts_with("b b ") && rest.ends_with("Own."), "{rest}");
}

#[test]
fn what_a_schema_no_longer_says_is_told_in_the_description() {
    let schema = json!({ "type": "object", "properties": { "a": {}, "b": {} }, "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] });
    let request = with(vec![spec("t", "Does it.", schema)]);
    let tools = Tools::of(&request, &rules(SchemaDialect::Anthropic));
    assert_eq!(
        tools.list()[0].description,
        "Does it.\n\nExactly one of these holds: a; b."
    );
}

#[test]
fn names_that_a_provider_does_not_take_are_others_there_and_true_here() {
    let schema = json!({ "type": "object", "properties": { "$top": { "type": "integer" } } });
    let request = with(vec![
        spec("read.file", "", schema.clone()),
        spec("read/file", "", schema),
    ]);
    let tools = Tools::of(&request, &rules(SchemaDialect::Anthropic));
    let names: Vec<_> = tools.list().iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["read_file", "read_file_2"]);
    let mut calls = [ToolCall::new("a", "read_file_2", json!({ "_top": 3 }))];
    tools.inward(&mut calls);
    assert_eq!(
        calls[0],
        ToolCall::new("a", "read/file", json!({ "$top": 3 }))
    );
    assert_eq!(tools.name("read/file"), "read_file_2");
    assert_eq!(tools.arguments(&calls[0]), r#"{"_top":3}"#);
    // The fitted schemas are kept, and belong to their tools.
    let other = with(vec![spec("other", "", json!({}))]);
    let tools = Tools::of(&other, &rules(SchemaDialect::Anthropic));
    assert_eq!(tools.list()[0].name, "other");
}

#[test]
fn a_choice_that_a_provider_does_not_take_is_left_to_the_model() {
    let request = with(vec![spec("t", "", json!({}))]);
    let named = ToolChoice::Tool("t".to_owned());
    let mut rules = rules(SchemaDialect::OpenAi);
    let choice = |rules: &Rules, wanted: &ToolChoice, thinks| {
        let tools = Tools::of(&request, rules);
        match tools.choice(wanted, rules, thinks) {
            Choice::Auto => "auto",
            Choice::None => "none",
            Choice::Required => "required",
            Choice::Named(_) => "named",
        }
    };
    assert_eq!(choice(&rules, &named, true), "named");
    assert_eq!(
        choice(&rules, &ToolChoice::Tool("u".to_owned()), false),
        "auto"
    );
    assert_eq!(choice(&rules, &ToolChoice::None, false), "none");
    rules.forced_while_thinking = false;
    assert_eq!(choice(&rules, &named, true), "auto");
    assert_eq!(choice(&rules, &ToolChoice::Required, false), "required");
    rules.tool_choice = vec![ToolChoiceWord::Any];
    assert_eq!(choice(&rules, &named, false), "required");
    rules.tool_choice.clear();
    assert_eq!(choice(&rules, &ToolChoice::Required, false), "auto");
    assert_eq!(choice(&rules, &ToolChoice::None, false), "auto");
}
