//! What sessions do with a model.

use serde_json::{Value, json};

/// One session: an agent, and what happens to it one after the other.
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// Members of the agent besides its model.
    pub(super) agent: Value,
    pub(super) acts: Vec<Act>,
}

/// Something that happens to a session; the text is the script of the model's answers.
pub(super) enum Act {
    /// A send with options.
    Send(String, Value),
    /// A send with so many pictures.
    Pictures(String, usize),
    /// A send, and a message while it runs, which interrupts it or not.
    Meanwhile(String, &'static str, bool),
}

impl Act {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Send(text, _) | Self::Pictures(text, _) | Self::Meanwhile(text, _, _) => text,
        }
    }
}

impl Scene {
    /// Whether it is also played with a vendor's other models.
    pub(super) fn is_short(&self) -> bool {
        matches!(
            self.name,
            "parallel calls" | "rounds" | "a fact by structure" | "temperature 0" | "without tools"
        )
    }
}

fn send(text: &str) -> Act {
    Act::Send(text.to_owned(), json!({}))
}

fn with(text: &str, options: Value) -> Act {
    Act::Send(text.to_owned(), options)
}

fn scene(name: &'static str, agent: Value, acts: Vec<Act>) -> Scene {
    Scene { name, agent, acts }
}

/// Answers with one call each, all different.
fn rounds(count: usize) -> String {
    let rounds: Vec<String> = (0..count)
        .map(|n| format!("!call look {{\"n\":{n}}}"))
        .collect();
    rounds.join("\n!then\n")
}

fn fact() -> Value {
    json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": false})
}

pub(super) fn scenes() -> Vec<Scene> {
    let mut scenes = talk();
    scenes.extend(calls());
    scenes.extend(contexts());
    scenes.extend(structures());
    scenes.extend(settings());
    scenes.extend(failures());
    scenes
}

fn talk() -> Vec<Scene> {
    vec![
        scene(
            "without tools",
            json!({"tools": []}),
            vec![send("hello"), send("and again")],
        ),
        scene(
            "an echo",
            json!({}),
            vec![send("hello"), send("what else?"), send("and else?")],
        ),
        scene(
            "thinking aloud",
            json!({}),
            vec![send("!think first this, then that\n!say so"), send("go on")],
        ),
        scene(
            "no system prompt",
            json!({"system_prompt": null}),
            vec![send("!call look {\"n\":1}")],
        ),
        scene(
            "pictures",
            json!({}),
            vec![
                Act::Pictures("!say a dot".to_owned(), 1),
                send("and the other?"),
            ],
        ),
        scene(
            "many pictures and calls",
            json!({}),
            vec![
                Act::Pictures("!call look {\"n\":2}".to_owned(), 3),
                send("again"),
            ],
        ),
        scene(
            "other alphabets",
            json!({}),
            vec![
                send(
                    "!call look {\"q\":\"größer 日本 \u{1f600}\",\"n\":3}\n!then\n!say schön \u{1f600}",
                ),
                send("weiter"),
            ],
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of scenes")]
fn calls() -> Vec<Scene> {
    let parallel = "!call look {\"n\":1}\n!call look {\"n\":2}\n!call look {\"n\":3}";
    vec![
        scene(
            "one call",
            json!({}),
            vec![send("!call look {\"n\":1}"), send("thanks")],
        ),
        scene(
            "parallel calls",
            json!({}),
            vec![send(parallel), send("thanks")],
        ),
        scene(
            "rounds",
            json!({}),
            vec![send(&rounds(4)), send(&rounds(2)), send("thanks")],
        ),
        scene(
            "rounds with thinking",
            json!({}),
            vec![
                send(&format!(
                    "!think one\n{parallel}\n!then\n!think two\n!call look {{\"n\":9}}\n!then\n!think three\n!say done"
                )),
                send("thanks"),
            ],
        ),
        scene(
            "text before calls",
            json!({}),
            vec![
                send(&format!(
                    "!say I look.\n{parallel}\n!then\n!say Once more.\n!call look {{\"n\":7}}"
                )),
                send("thanks"),
            ],
        ),
        scene(
            "failed results",
            json!({}),
            vec![
                send("!call look {\"fail\":true}\n!call look {\"n\":1}"),
                send("thanks"),
            ],
        ),
        scene(
            "empty results",
            json!({}),
            vec![
                send("!call look {\"chars\":0}\n!call look {\"n\":1}"),
                send("thanks"),
            ],
        ),
        scene(
            "pictures as results",
            json!({}),
            vec![
                send(
                    "!call look {\"image\":100}\n!call look {\"n\":1}\n!then\n!call look {\"n\":2}",
                ),
                send("thanks"),
            ],
        ),
        scene(
            "long results",
            json!({}),
            vec![
                send("!call look {\"chars\":20000,\"n\":1}\n!then\n!call look {\"n\":2}"),
                send("thanks"),
            ],
        ),
        scene(
            "unknown tools and bad arguments",
            json!({}),
            vec![
                send(
                    "!call nothing {\"n\":1}\n!call look {\"n\":1}\n!then\n!call look {\"n\":null}",
                ),
                send("thanks"),
            ],
        ),
        scene(
            "numbers beyond 64 bits",
            json!({}),
            vec![
                send("!call look {\"q\":123456789012345678901234567890,\"n\":1}"),
                send("thanks"),
            ],
        ),
        scene(
            "children",
            json!({"tools": ["look", "spawn_agent"]}),
            vec![
                send(
                    "!call spawn_agent {\"task\":\"the child of it\\n!call look {\\\"n\\\":4}\\n!then\\n!say found\"}\n!call look {\"n\":1}",
                ),
                send("thanks"),
            ],
        ),
        scene(
            "odd schemas",
            json!({"tools": odd_tools()}),
            vec![
                send("!call look {\"n\":1}\n!then\n!call look {\"n\":2}"),
                send("thanks"),
            ],
        ),
        scene(
            "many tools",
            json!({"tools": many_tools()}),
            vec![send("!call look {\"n\":1}"), send("thanks")],
        ),
    ]
}

fn contexts() -> Vec<Scene> {
    let todo = "!call todo {\"items\":[{\"text\":\"one thing\",\"status\":\"in_progress\"},{\"text\":\"another\"}]}";
    let folding = json!({"fold": {"strategy": "summary", "hard": 0.004, "keep_sends": 1}});
    let elided = json!({"fold": {"strategy": "projection", "hard": 0.004, "keep_sends": 1}});
    let long = (0..6)
        .map(|n| {
            send(&format!(
                "{}\n!call look {{\"chars\":900,\"n\":{n}}}\n!then\n!call look {{\"n\":{n}}}",
                "words ".repeat(40)
            ))
        })
        .collect();
    let elide = (0..5)
        .map(|n| {
            send(&format!(
                "{}\n!call look {{\"chars\":900,\"n\":{n}}}",
                "words ".repeat(40)
            ))
        })
        .collect();
    let inside = (0..6)
        .map(|n| format!("!call look {{\"chars\":900,\"n\":{n}}}"))
        .collect::<Vec<_>>()
        .join("\n!then\n");
    vec![
        scene(
            "a tail",
            json!({"tools": ["look", "todo"]}),
            vec![
                send(&format!(
                    "{todo}\n!then\n!call look {{\"n\":1}}\n!call look {{\"n\":2}}\n!then\n!call look {{\"n\":3}}"
                )),
                send("!call look {\"n\":4}"),
                send("thanks"),
            ],
        ),
        scene(
            "steering",
            json!({"tools": ["look", "slow"]}),
            vec![
                Act::Meanwhile(
                    "!call slow {\"ms\":400}\n!call look {\"n\":1}\n!then\n!call look {\"n\":2}"
                        .to_owned(),
                    "mind the gap",
                    false,
                ),
                send("thanks"),
            ],
        ),
        scene(
            "interruption",
            json!({"tools": ["look", "slow"]}),
            vec![
                Act::Meanwhile(
                    "!call slow {\"ms\":700}\n!call look {\"n\":1}".to_owned(),
                    "stop that, do this",
                    true,
                ),
                send("go on"),
                send("!call look {\"n\":2}"),
            ],
        ),
        scene("folds between sends", json!({"context": folding}), long),
        scene("folds without a model", json!({"context": elided}), elide),
        scene(
            "a fold within a send",
            json!({"context": folding}),
            vec![send("first"), send(&inside), send("thanks")],
        ),
        scene(
            "few messages",
            json!({"context": {"last_messages": 4}}),
            vec![
                send(&rounds(3)),
                send("!call look {\"n\":5}"),
                send("thanks"),
                send("thanks again"),
            ],
        ),
    ]
}

fn structures() -> Vec<Scene> {
    let shaped = || json!({"output_schema": fact()});
    vec![
        scene(
            "a fact by structure",
            json!({"tools": []}),
            vec![with("!say {\"n\":3}", shaped()), send("thanks")],
        ),
        scene(
            "structure with tools",
            json!({}),
            vec![
                with("!call look {\"n\":1}\n!then\n!say {\"n\":4}", shaped()),
                send("thanks"),
            ],
        ),
        scene(
            "structure at the second attempt",
            json!({}),
            vec![
                with("!say no idea\n!then\n!say {\"n\":5}", shaped()),
                send("thanks"),
            ],
        ),
        scene(
            "structure and a tail",
            json!({"tools": ["look", "todo"]}),
            vec![
                with(
                    "!call todo {\"items\":[{\"text\":\"one\"}]}\n!then\n!call look {\"n\":1}\n!then\n!say {\"n\":6}",
                    shaped(),
                ),
                send("thanks"),
            ],
        ),
        scene(
            "any object",
            json!({"tools": [], "output_schema": {"type": "json_object"}}),
            vec![send("as JSON please\n!say {\"n\":7}")],
        ),
    ]
}

fn settings() -> Vec<Scene> {
    let call = "!call look {\"n\":1}";
    let mut scenes = vec![
        scene(
            "temperature 0",
            json!({"temperature": 0.0}),
            vec![send(call), send("thanks")],
        ),
        scene(
            "temperature and top_p",
            json!({"temperature": 0.7, "top_p": 0.9}),
            vec![send(call)],
        ),
        scene(
            "temperature 2",
            json!({"temperature": 2.0}),
            vec![send(call)],
        ),
        scene(
            "stop words",
            json!({"stop": ["STOP", "HALT"]}),
            vec![send(call)],
        ),
        scene(
            "a small answer",
            json!({"max_tokens": 200}),
            vec![send(call)],
        ),
        scene(
            "a large answer",
            json!({"max_tokens": 30_000}),
            vec![send(call)],
        ),
        scene(
            "a tool that has to be called",
            json!({}),
            vec![
                with(call, json!({"tool_choice": "required"})),
                send("thanks"),
            ],
        ),
        scene(
            "a tool by name",
            json!({}),
            vec![
                with(call, json!({"tool_choice": {"name": "look"}})),
                send("thanks"),
            ],
        ),
        scene(
            "no tool at all",
            json!({}),
            vec![
                send(call),
                with("!say nothing", json!({"tool_choice": "none"})),
            ],
        ),
        scene(
            "one call at a time",
            json!({"parallel_tool_calls": false}),
            vec![send(call)],
        ),
    ];
    let efforts = [
        ("effort none", "none"),
        ("effort minimal", "minimal"),
        ("effort low", "low"),
        ("effort medium", "medium"),
        ("effort high", "high"),
        ("effort xhigh", "xhigh"),
        ("effort max", "max"),
    ];
    for (name, effort) in efforts {
        let agent = json!({"reasoning_effort": effort});
        scenes.push(scene(name, agent, vec![send(call), send("thanks")]));
    }
    let one = |effort: &str| with(call, json!({"reasoning_effort": effort}));
    scenes.push(scene(
        "efforts in turn",
        json!({}),
        vec![one("none"), one("high"), one("none"), one("low")],
    ));
    scenes
}

fn failures() -> Vec<Scene> {
    vec![
        scene(
            "throttled",
            json!({}),
            vec![
                send("!error throttle 2\n!call look {\"n\":1}"),
                send("thanks"),
            ],
        ),
        scene(
            "a server that fails",
            json!({}),
            vec![
                send("!call look {\"n\":1}\n!then\n!error server\n!call look {\"n\":2}"),
                send("thanks"),
            ],
        ),
        scene(
            "a broken stream",
            json!({}),
            vec![
                send("!break 1\n!call look {\"n\":1}\n!then\n!break 1\n!say the end of it all"),
                send("thanks"),
            ],
        ),
        scene(
            "an overflow",
            json!({}),
            vec![
                send("!call look {\"n\":1}"),
                send("thanks"),
                send("!error overflow 1\n!say it fits now"),
                send("thanks"),
            ],
        ),
        scene(
            "cut at the limit",
            json!({}),
            vec![
                send("!say the first half and\n!len\n!then\n!say the second"),
                send("thanks"),
            ],
        ),
        scene(
            "cut within a call",
            json!({}),
            vec![
                send("!call look {\"n\":1}\n!len\n!then\n!call look {\"n\":2}"),
                send("thanks"),
            ],
        ),
        scene(
            "nothing said after a call",
            json!({}),
            vec![
                send("!call look {\"n\":1}\n!then\n!empty\n!then\n!say at last"),
                send("thanks"),
            ],
        ),
    ]
}

fn external(name: &str, parameters: &Value) -> Value {
    json!({"type": "external", "name": name, "description": "What a server offers.", "parameters": parameters})
}

/// Tools in the manner of public MCP servers.
fn odd_tools() -> Value {
    let schemas = [
        json!({"type": "object"}),
        json!({}),
        json!({"type": "object", "anyOf": [{"required": ["id"]}, {"required": ["url"]}], "properties": {"id": {"type": "string"}, "url": {"type": "string"}}}),
        json!({"type": "object", "oneOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}),
        json!({"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"at": {"type": "string", "format": "date-time"}, "of": {"const": "x"}}, "additionalProperties": false}),
        json!({"type": "object", "properties": {"filter[name]": {"type": "string"}, "$top": {"type": "integer"}, "@type": {"type": "string"}}}),
        json!({"type": "object", "properties": {"who": {"$ref": "#/$defs/who"}}, "$defs": {"who": {"type": "object", "properties": {"name": {"type": "string"}}}}}),
        json!({"type": "object", "properties": {"node": {"$ref": "#/$defs/node"}}, "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}),
        json!({"type": "object", "properties": {"kind": {"type": ["string", "null"], "enum": ["a", "", null]}, "level": {"type": "integer", "enum": [1, 2, 3]}}}),
        json!({"type": "object", "properties": {"any": {}, "list": {"type": "array"}, "map": {"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": {"type": "string"}}}}),
        json!({"type": "object", "properties": {"either": {"description": "one of two", "oneOf": [{"type": "string"}, {"type": "object", "properties": {"x": {"type": "number"}}}]}}}),
        json!({"type": "object", "properties": {"opts": {"type": "object", "properties": {}}, "deep": {"type": "object", "properties": {"deeper": {"type": "object", "properties": {"deepest": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}}}}),
        json!({"type": "object", "properties": {"both": {"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]}}}),
        json!({"type": "object", "properties": {"pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}, "old": {"type": "array", "items": [{"type": "string"}]}}}),
    ];
    let mut tools = vec![json!("look")];
    for (number, schema) in schemas.iter().enumerate() {
        tools.push(external(&format!("odd_{number}"), schema));
    }
    let mut long = external(&"n".repeat(64), &schemas[0]);
    long["description"] = json!("long ".repeat(400));
    tools.push(long);
    json!(tools)
}

fn many_tools() -> Value {
    let schema =
        json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    let mut tools = vec![json!("look")];
    tools.extend((0..90).map(|number| external(&format!("tool_{number}"), &schema)));
    json!(tools)
}
