//! The content of a request, the same for all protocols.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Chat completions.
    OpenAi,
    /// Responses.
    Responses,
    /// Messages.
    Anthropic,
}

/// The relevant parts of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) system: String,
    /// The last user text.
    pub(super) text: String,
    /// Assistant turns since that text.
    pub(super) round: usize,
    /// The tool results after it, to be answered.
    pub(super) results: Vec<String>,
    pub(super) messages: usize,
    pub(super) words: usize,
    /// The most tokens that the answer may have.
    pub(super) tokens_max: Option<usize>,
}

#[derive(Deserialize)]
struct Body {
    model: String,
    #[serde(default)]
    stream: bool,
    #[serde(default, alias = "max_completion_tokens", alias = "max_output_tokens")]
    max_tokens: Option<usize>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    system: Value,
    #[serde(default)]
    messages: Vec<Message>,
    /// Only in Responses.
    #[serde(default)]
    instructions: Value,
    /// Only in Responses: messages, calls and their results.
    #[serde(default)]
    input: Vec<Message>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: Value,
    /// The type of an item in Responses.
    #[serde(default)]
    r#type: String,
    /// The result of a call in Responses.
    #[serde(default)]
    output: Value,
}

impl Prompt {
    /// Parses a request body.
    pub(super) fn read(body: &[u8]) -> serde_json::Result<Self> {
        let body: Body = serde_json::from_slice(body)?;
        let mut prompt = Self {
            model: body.model,
            stream: body.stream,
            tokens_max: body.max_tokens,
            include_usage: body
                .stream_options
                .is_some_and(|options| options.include_usage),
            system: texts(&body.system).join("\n\n"),
            messages: body.messages.len() + body.input.len(),
            ..Self::default()
        };
        if let Some(instructions) = body.instructions.as_str() {
            instructions.clone_into(&mut prompt.system);
        }
        prompt.words = words(&prompt.system);
        prompt.items(&body.input);
        for message in &body.messages {
            let said = texts(&message.content);
            prompt.words += said.iter().map(|text| words(text)).sum::<usize>();
            match message.role.as_str() {
                "system" | "developer" => prompt.system = said.join("\n\n"),
                "tool" => prompt.results.push(said.join("\n\n")),
                "assistant" => {
                    prompt.round += 1;
                    prompt.results.clear();
                }
                _ => prompt.user(&message.content),
            }
        }
        Ok(prompt)
    }

    /// Reads the items of Responses. Consecutive items of the assistant are one turn.
    fn items(&mut self, items: &[Message]) {
        let mut inside = false;
        for item in items {
            let is_turn = match item.r#type.as_str() {
                "function_call_output" => {
                    let said = texts(&item.output).join("\n\n");
                    self.words += words(&said);
                    self.results.push(said);
                    false
                }
                "function_call" | "reasoning" => true,
                _ => item.role == "assistant",
            };
            let said = texts(&item.content);
            self.words += said.iter().map(|text| words(text)).sum::<usize>();
            if is_turn && !inside {
                self.round += 1;
                self.results.clear();
            } else if item.role == "user" {
                self.user(&item.content);
            }
            inside = is_turn;
        }
    }

    /// Reads a user message: texts, and in Messages also tool results. If several texts were merged
    /// into one message, the last one counts.
    fn user(&mut self, content: &Value) {
        if let Some(blocks) = content.as_array() {
            for block in blocks.iter().filter(|b| b["type"] == "tool_result") {
                self.results.push(texts(&block["content"]).join("\n\n"));
            }
        }
        if let Some(last) = texts(content).pop() {
            last.clone_into(&mut self.text);
            self.round = 0;
            self.results.clear();
        }
    }
}

fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect(),
        _ => Vec::new(),
    }
}

pub(super) fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Value) -> Prompt {
        Prompt::read(body.to_string().as_bytes()).expect("a request")
    }

    #[test]
    fn all_protocols_say_the_same() {
        let openai = read(
            &json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": null, "tool_calls": [{}]},
                {"role": "tool", "tool_call_id": "a", "content": "A"},
                {"role": "tool", "tool_call_id": "b", "content": "B"},
            ]}),
        );
        let anthropic = read(
            &json!({"model": "m", "stream": true, "system": "be brief", "messages": [
                {"role": "user", "content": [{"type": "text", "text": "one"}]},
                {"role": "assistant", "content": [{"type": "tool_use"}]},
                {"role": "user", "content": [{"type": "tool_result", "content": "A"}, {"type": "tool_result", "content": [{"type": "text", "text": "B"}]}]},
            ]}),
        );
        let responses = read(
            &json!({"model": "m", "stream": true, "instructions": "be brief", "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "x"},
                {"type": "function_call", "call_id": "a"},
                {"type": "function_call_output", "call_id": "a", "output": "A"},
                {"type": "function_call_output", "call_id": "b", "output": "B"},
            ]}),
        );
        for prompt in [openai, responses, anthropic] {
            assert_eq!(
                (prompt.system.as_str(), prompt.text.as_str()),
                ("be brief", "one")
            );
            assert_eq!(
                (prompt.round, prompt.results),
                (1, vec!["A".to_owned(), "B".to_owned()])
            );
        }
    }

    #[test]
    fn a_text_after_results_begins_anew() {
        let prompt = read(&json!({"model": "m", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": []},
            {"role": "user", "content": [{"type": "tool_result", "content": "A"}, {"type": "text", "text": "two"}]},
        ]}));
        assert_eq!(
            (prompt.text.as_str(), prompt.round, prompt.results.len()),
            ("two", 0, 0)
        );
    }
}
