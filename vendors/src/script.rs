//! What the model does: what the user's last text with directives says, else an echo.

use serde_json::{Value, json};

use crate::rules::Role;
use crate::view::{Forced, View};

/// One answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What it thinks first; `None`: as the model does by itself.
    pub think: Option<String>,
    pub say: Option<String>,
    pub calls: Vec<(String, Value)>,
    /// It ends at the limit of tokens.
    pub cut: bool,
    /// It says nothing at all.
    pub empty: bool,
    /// The stream breaks in the middle, so many times.
    pub broken: u32,
    /// An error instead, so many times.
    pub error: Option<(String, u32)>,
}

/// What is to be answered to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The number of the answer to this text.
    pub number: usize,
    /// The text with the directives; empty for an echo.
    pub text: String,
    pub plan: Plan,
}

/// Reads the script of a request.
pub fn step(view: &View<'_>, vendor: &str) -> Step {
    let scripted = view
        .turns
        .iter()
        .enumerate()
        .rev()
        .find_map(|(place, turn)| {
            let text = turn.texts.iter().rev().find(|text| has_directives(text))?;
            (turn.role == Role::User).then_some((place, *text))
        });
    let Some((place, text)) = scripted else {
        return Step {
            number: 0,
            text: String::new(),
            plan: unscripted(view, vendor),
        };
    };
    let number = view.turns[place..]
        .iter()
        .filter(|turn| turn.role == Role::Assistant)
        .count();
    let plan = plans(text, view, vendor)
        .into_iter()
        .nth(number)
        .unwrap_or_else(|| ending(view, vendor));
    Step {
        number,
        text: text.to_owned(),
        plan,
    }
}

const DIRECTIVES: [&str; 9] = [
    "!call ", "!calls ", "!think", "!say ", "!len", "!empty", "!error ", "!break", "!then",
];

pub(crate) fn has_directives(text: &str) -> bool {
    text.lines().any(is_directive)
}

fn is_directive(line: &str) -> bool {
    DIRECTIVES.iter().any(|word| line.starts_with(word))
}

/// The answers that a text asks for, one after the other.
pub(crate) fn plans(text: &str, view: &View<'_>, vendor: &str) -> Vec<Plan> {
    let mut plans = vec![Plan::default()];
    for line in text.lines().filter(|line| is_directive(line)) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let plan = plans.last_mut().expect("there is one from the beginning");
        match word {
            "!then" => plans.push(Plan::default()),
            "!call" => {
                let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
                plan.calls.push((name.to_owned(), arguments));
            }
            "!calls" => {
                let count: usize = rest.parse().unwrap_or(1);
                let tool = view.tools.first();
                for number in 0..count {
                    let name = tool.map_or("none", |tool| tool.name).to_owned();
                    let arguments = tool
                        .and_then(|tool| tool.schema)
                        .map_or_else(|| json!({}), |schema| sample(schema, number));
                    plan.calls.push((name, arguments));
                }
            }
            "!think" => plan.think = Some(rest.to_owned()),
            "!say" => plan.say = Some(rest.to_owned()),
            "!len" => plan.cut = true,
            "!empty" => plan.empty = true,
            "!break" => plan.broken = rest.parse().unwrap_or(1),
            _ => {
                let mut words = rest.split_whitespace();
                let kind = words.next().unwrap_or_default();
                let times = words.next().and_then(|times| times.parse().ok());
                // Whoever falls back to another vendor must not meet the error there, too.
                if words.next().is_none_or(|only| only == vendor) {
                    plan.error = Some((kind.to_owned(), times.unwrap_or(1)));
                }
            }
        }
    }
    plans
}

/// Without a script: what the request demands, else an echo.
fn unscripted(view: &View<'_>, vendor: &str) -> Plan {
    let behind = view
        .turns
        .last()
        .is_some_and(|turn| turn.role == Role::Tool);
    if let Some(forced) = view.forced
        && !behind
        && let Some(tool) = view
            .tools
            .iter()
            .find(|tool| forced == Forced::Any || forced == Forced::Named(tool.name))
    {
        let arguments = tool
            .schema
            .map_or_else(|| json!({}), |schema| sample(schema, 0));
        return Plan {
            calls: vec![(tool.name.to_owned(), arguments)],
            ..Plan::default()
        };
    }
    ending(view, vendor)
}

/// The last answer to a text.
fn ending(view: &View<'_>, vendor: &str) -> Plan {
    let say = if let Some(schema) = view.schema {
        sample(schema, 0).to_string()
    } else {
        let heard = view.turns.iter().rev().find_map(|turn| {
            let result = turn.results.last().map(|(_, said)| said.as_str());
            let text = turn.texts.last().copied();
            (turn.role != Role::System).then_some(result.or(text)?)
        });
        let heard: String = heard.unwrap_or_default().chars().take(60).collect();
        format!("{vendor} heard: {}", heard.replace(['\n', '!'], " "))
    };
    Plan {
        say: Some(say),
        ..Plan::default()
    }
}

/// A value that fits a schema, as far as schemas of tools go.
pub fn sample(schema: &Value, number: usize) -> Value {
    if let Some(value) = schema.get("const").or_else(|| schema.pointer("/enum/0")) {
        return value.clone();
    }
    for name in ["anyOf", "oneOf"] {
        if let Some(first) = schema.get(name).and_then(|list| list.get(0))
            && schema.get("properties").is_none()
        {
            return sample(first, number);
        }
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        kind => kind.and_then(Value::as_str),
    };
    match kind {
        Some("string") => {
            let least = schema.get("minLength").and_then(Value::as_u64);
            let word = format!("word{number}");
            json!(word + &"x".repeat(least.unwrap_or(0).saturating_sub(5) as usize))
        }
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("array") => {
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            let element = schema
                .get("items")
                .cloned()
                .unwrap_or(json!({"type": "string"}));
            (0..least).map(|_| sample(&element, number)).collect()
        }
        _ => object(schema, number),
    }
}

fn object(schema: &Value, number: usize) -> Value {
    let required = schema.get("required").and_then(Value::as_array);
    let mut members = serde_json::Map::new();
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        let property = schema.pointer("/properties").and_then(|all| all.get(name));
        let value = property.map_or(json!("word"), |property| sample(property, number));
        members.insert(name.to_owned(), value);
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Protocol;

    #[test]
    fn each_answer_of_a_script_is_given_once_and_the_last_is_an_echo() {
        let text = "please\n!think hm\n!call f {\"a\":1}\n!call g\n!then\n!say done";
        let mut body = json!({"messages": [{"role": "user", "content": text}]});
        let first = step(&View::new(Protocol::Chat, &body), "v").plan;
        assert_eq!(first.think.as_deref(), Some("hm"));
        assert_eq!(
            first.calls,
            vec![("f".into(), json!({"a": 1})), ("g".into(), json!({}))]
        );
        let more = json!([
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "!call of a tool"},
            {"role": "user", "content": "a note without directives"},
        ]);
        let messages = body["messages"].as_array_mut().unwrap();
        messages.extend(more.as_array().unwrap().iter().cloned());
        let second = step(&View::new(Protocol::Chat, &body), "v").plan;
        assert_eq!(second.say.as_deref(), Some("done"));
    }

    #[test]
    fn a_sample_has_what_its_schema_requires() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "array", "minItems": 1, "items": {"enum": ["x"]}},
            "b": {"type": ["integer", "null"]}, "c": {"type": "string"}}});
        assert_eq!(sample(&schema, 0), json!({"a": ["x"], "b": 1}));
    }
}
