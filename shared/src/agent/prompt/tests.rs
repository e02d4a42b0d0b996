use serde_json::json;

use super::*;

fn prompt(value: &Value) -> PromptSpec {
    serde_json::from_value(value.clone()).expect("a prompt")
}

fn agent(value: &Value) -> AgentSpec {
    AgentSpec {
        system_prompt: Some("You review code.".to_owned()),
        prompt: Some(prompt(value)),
        ..AgentSpec::default()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "called with `json!`")]
fn members(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

fn example() -> AgentSpec {
    agent(&json!({
        "sections": [
            {"name": "style", "text": "Write in a {{ tone }} tone."},
            {"name": "who", "text": "You work for {{ metadata.user }}.", "when": "metadata.user is defined"},
            {"name": "tools", "tool_catalog": true},
            {"name": "rules", "text": "{% for rule in rules %}- {{ rule }}\n{% endfor %}"},
        ],
        "variables": {
            "tone": {"default": "friendly"},
            "rules": {"required": true, "description": "What to look for."},
        },
    }))
}

fn pointers(value: &Value) -> Vec<String> {
    let faults = prompt(value).faults();
    faults.into_iter().map(|fault| fault.pointer).collect()
}

const TOOLS: [(&str, &str); 2] = [("shell", "Runs a\n command."), ("glob", "Finds files.")];

#[test]
fn sections_stand_behind_the_system_prompt_in_their_order() {
    let set = members(json!({"rules": ["no panics", "short functions"]}));
    let bound = bind(example(), None, set, &members(json!({"user": "Ada"})));
    let bound = bound.expect("it can be rendered");
    let text = assemble(&bound, None, TOOLS.into_iter()).expect("a prompt");
    assert_eq!(
        text,
        "You review code.\n\nWrite in a friendly tone.\n\nYou work for Ada.\n\n# Available tools\n\
         - glob: Finds files.\n- shell: Runs a command.\n\n- no panics\n- short functions"
    );
}

#[test]
fn a_section_whose_condition_does_not_hold_and_an_empty_catalogue_are_left_out() {
    let set = members(json!({"rules": [], "tone": "dry"}));
    let bound = bind(example(), None, set, &Map::new()).expect("it can be rendered");
    let text = assemble(&bound, None, std::iter::empty()).expect("a prompt");
    assert_eq!(text, "You review code.\n\nWrite in a dry tone.");
}

#[test]
fn a_send_replaces_all_of_it() {
    let set = members(json!({"rules": ["x"]}));
    let bound = bind(example(), None, set, &Map::new()).expect("it can be rendered");
    let text = assemble(&bound, Some("Say yes."), TOOLS.into_iter());
    assert_eq!(text.as_deref(), Some("Say yes."));
    assert_eq!(assemble(&bound, Some(" "), TOOLS.into_iter()), None);
}

#[test]
fn an_agent_without_a_prompt_of_sections_keeps_its_system_prompt_as_it_is() {
    let plain = AgentSpec {
        system_prompt: Some(" Be brief.\n".to_owned()),
        ..AgentSpec::default()
    };
    let bound = bind(plain.clone(), None, Map::new(), &Map::new()).expect("nothing to render");
    assert_eq!(bound, plain);
    let text = assemble(&bound, None, TOOLS.into_iter());
    assert_eq!(text.as_deref(), Some(" Be brief.\n"));
}

#[test]
fn what_a_session_sets_wrongly_is_said_at_once() {
    let set = members(json!({"colour": "red", "tone": "a\u{0}b"}));
    let faults = bind(example(), None, set, &Map::new()).expect_err("it is refused");
    let pointers: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        ["/variables/colour", "/variables/tone", "/variables/rules"]
    );
}

#[test]
fn metadata_that_a_section_reads_and_the_session_lacks_is_said() {
    let spec = agent(&json!({"sections": [{"name": "who", "text": "For {{ metadata.user }}."}]}));
    let faults = bind(spec, None, Map::new(), &Map::new()).expect_err("it is refused");
    assert_eq!(faults[0].pointer, "/agent");
    assert!(faults[0].detail.contains("\"who\""), "{}", faults[0].detail);
}

#[test]
fn faults_of_a_prompt_are_pointed_at() {
    assert_eq!(example().prompt.expect("it has one").faults(), []);
    let wrong = json!({
        "sections": [
            {"name": "a", "text": "{{ nobody }}"},
            {"name": "a", "text": "{{ metadata.x"},
            {"name": "b b", "text": "x"},
            {"name": "c", "text": "x", "tool_catalog": true},
            {"name": "d"},
            {"name": "e", "text": "x", "when": "y %}{{ metadata }}{% if 1"},
            {"name": "f", "text": "x", "when": "other == 1"},
            {"name": "g", "text": "{{ tone() }}"},
        ],
        "variables": {"metadata": {}, "tone": {"required": true, "default": "x"}, "1st": {}},
    });
    assert_eq!(
        pointers(&wrong),
        [
            "/variables/1st",
            "/variables/metadata",
            "/variables/tone/default",
            "/sections/0/text",
            "/sections/1/name",
            "/sections/1/text",
            "/sections/2/name",
            "/sections/3",
            "/sections/4",
            "/sections/5/when",
            "/sections/6/when",
            "/sections/7/text",
        ]
    );
}

#[test]
fn what_was_bound_survives_storing() {
    let set = members(json!({"rules": ["x"]}));
    let reference = AgentRef {
        name: "reviewer".parse().expect("a name"),
        version: 3,
    };
    let bound = bind(example(), Some(reference), set, &Map::new()).expect("it can be rendered");
    assert_eq!(bound.name.as_deref(), Some("reviewer"));
    let stored = serde_json::to_string(&bound).expect("it is JSON");
    let read: AgentSpec = crate::stored::read(&stored).expect("it can be read");
    assert_eq!(read, bound);
}
