//! One event per line: readable for people, unchanged for programs.

use serde_json::Value;

use super::answer::text_of;
use crate::args::Format;
use crate::client::Event;
use crate::failure::Failure;
use crate::output;

/// Maximum characters of an event's description.
const WORDS_MAX: usize = 120;

/// Prints an event on a line of its own.
pub(super) fn print_event(event: &Event, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json | Format::Jsonl => output::line(&event.to_json().to_string()),
        Format::Table => {
            let id = event.id.as_deref().unwrap_or("-");
            let line = format!("{id:<8} {:<20} {}", event.name, words(event));
            output::line(line.trim_end())
        }
    }
}

/// The description of an event, on one line.
fn words(event: &Event) -> String {
    let data = &event.data;
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    let words = match event.name.as_str() {
        "message.completed" => message(data),
        "message.delta" | "reasoning.delta" => format!("{:?}", text("text")),
        name if name.starts_with("tool_call.") => call(data),
        name if name.starts_with("round.") => {
            let round = format!("round {}", data["round"]);
            let tokens = |name: &str| data["usage"][name].as_u64();
            match (
                text("model"),
                tokens("input_tokens"),
                tokens("output_tokens"),
            ) {
                ("", None, _) | ("", _, None) => round,
                (model, Some(read), Some(written)) => {
                    format!("{round} {model} {read} tokens in, {written} out")
                }
                (model, _, _) => format!("{round} {model}"),
            }
        }
        name if name.starts_with("node.") => format!("{} {}", text("path"), why(data)),
        _ => {
            let reasons = ["waiting_on", "reason", "stop_reason"].map(text);
            let mut words = reasons.join(" ");
            if let Some(answer) = data["output_text"].as_str() {
                words = format!("{words} {answer:?}");
            }
            format!("{words} {} {}", counts(data), why(data))
        }
    };
    let line: Vec<&str> = words.split_whitespace().collect();
    cut(&output::harmless(&line.join(" ")))
}

fn message(data: &Value) -> String {
    let calls = data["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<String> = calls
        .map(|call| format!("[calls {}]", call["name"].as_str().unwrap_or_default()))
        .collect();
    let role = data["role"].as_str().unwrap_or_default();
    format!("{role}: {} {}", text_of(data), calls.join(" "))
}

fn call(data: &Value) -> String {
    let name = data["name"].as_str().unwrap_or_default();
    let shown = |name: &str| match &data[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!(
        "{name} {} {} {}",
        shown("arguments"),
        shown("output"),
        shown("error")
    )
}

/// The number of a run's leaves in each state.
fn counts(data: &Value) -> String {
    let members = data["counts"].as_object().into_iter().flatten();
    let some = members.filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0));
    let words: Vec<String> = some
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    words.join(", ")
}

fn why(data: &Value) -> String {
    let error = &data["error"];
    match (error["message"].as_str(), error["code"].as_str()) {
        (Some(message), Some(code)) => format!("{message} ({code})"),
        (Some(message), None) => message.to_owned(),
        _ => String::new(),
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(name: &str, data: Value) -> String {
        let name = name.to_owned();
        words(&Event {
            name,
            id: None,
            data,
        })
    }

    #[test]
    fn people_read_words_and_no_json() {
        let text = json!([{ "type": "text", "text": "one\ntwo\u{1b}[2J" }]);
        let calls = json!([{ "name": "grep" }]);
        let message = json!({ "role": "assistant", "content": text, "tool_calls": calls });
        assert_eq!(
            said("message.completed", message),
            "assistant: one two[2J [calls grep]"
        );
        let waiting = json!({ "id": "snd_1", "status": "waiting", "waiting_on": "human" });
        assert_eq!(said("send.waiting", waiting), "human");
        let error = json!({ "code": "llm.auth", "message": "the key is refused" });
        let failed = json!({ "stop_reason": "provider_error", "error": error });
        assert_eq!(
            said("send.failed", failed),
            "provider_error the key is refused (llm.auth)"
        );
        let node = json!({ "path": "/0:plan" });
        assert_eq!(said("node.completed", node), "/0:plan");
        let usage = json!({ "input_tokens": 3, "output_tokens": 4 });
        let round = json!({ "round": 0, "model": "m", "usage": usage });
        assert_eq!(
            said("round.completed", round),
            "round 0 m 3 tokens in, 4 out"
        );
        let long = json!({ "text": "é".repeat(200) });
        assert_eq!(said("message.delta", long).chars().count(), WORDS_MAX + 1);
    }
}
