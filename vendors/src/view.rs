//! A request of any protocol as turns, calls, results and tools.

use serde_json::Value;

use crate::rules::{Protocol, Role};

/// What a request says, whatever its protocol.
#[derive(Debug)]
pub struct View<'a> {
    pub model: &'a str,
    pub stream: bool,
    pub turns: Vec<Turn<'a>>,
    pub tools: Vec<Tool<'a>>,
    /// The data URL or base64 of each picture, or its link.
    pub pictures: Vec<&'a str>,
    /// The schema that the answer has to fit.
    pub schema: Option<&'a Value>,
    /// The most tokens that the answer may have.
    pub limit: Option<u64>,
    /// The tool that has to be called.
    pub forced: Option<Forced<'a>>,
}

/// A call that a request demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced<'a> {
    Any,
    Named(&'a str),
}

/// What one side says before the other does.
#[derive(Debug)]
pub struct Turn<'a> {
    pub role: Role,
    /// The number of the message or item.
    pub index: usize,
    pub texts: Vec<&'a str>,
    pub calls: Vec<Call<'a>>,
    /// Ids of the calls that are answered, and with what.
    pub results: Vec<(&'a str, String)>,
    /// The message or item; of several items the first.
    pub value: &'a Value,
}

/// A call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub arguments: &'a Value,
}

/// A tool that is offered.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    pub name: &'a str,
    pub schema: Option<&'a Value>,
}

impl<'a> View<'a> {
    /// Reads a request, leniently: what is odd is for the rules to refuse.
    pub fn new(protocol: Protocol, body: &'a Value) -> Self {
        let list = |name: &str| body.get(name).and_then(Value::as_array);
        let mut view = Self {
            model: text(body, "model"),
            stream: body.get("stream") == Some(&Value::Bool(true)),
            turns: Vec::new(),
            tools: list("tools").into_iter().flatten().map(tool).collect(),
            pictures: Vec::new(),
            schema: schema(body),
            limit: ["max_completion_tokens", "max_tokens", "max_output_tokens"]
                .iter()
                .find_map(|name| body.get(*name).and_then(Value::as_u64)),
            forced: forced(body),
        };
        match protocol {
            Protocol::Chat => {
                for (index, message) in list("messages").into_iter().flatten().enumerate() {
                    view.chat(index, message);
                }
            }
            Protocol::Messages => {
                for (index, message) in list("messages").into_iter().flatten().enumerate() {
                    view.message(index, message);
                }
            }
            Protocol::Responses => {
                for (index, item) in list("input").into_iter().flatten().enumerate() {
                    view.item(index, item);
                }
                if let Some(text) = body.get("input").filter(|input| input.is_string()) {
                    view.push(Role::User, 0, text);
                    view.text(text);
                }
            }
        }
        view
    }

    fn push(&mut self, role: Role, index: usize, value: &'a Value) {
        self.turns.push(Turn {
            role,
            index,
            texts: Vec::new(),
            calls: Vec::new(),
            results: Vec::new(),
            value,
        });
    }

    fn turn(&mut self) -> &mut Turn<'a> {
        self.turns.last_mut().expect("a turn was just begun")
    }

    fn text(&mut self, value: &'a Value) {
        if let Some(text) = value.as_str() {
            self.turn().texts.push(text);
        }
    }

    /// The texts and pictures of a content, which is a text or a list of parts.
    fn content(&mut self, content: &'a Value) {
        self.text(content);
        for part in content.as_array().into_iter().flatten() {
            if let Some(text) = part.get("text") {
                self.text(text);
            }
            self.picture(part);
        }
    }

    fn picture(&mut self, part: &'a Value) {
        let url = part.get("image_url");
        let place = url
            .and_then(|url| url.get("url"))
            .or(url)
            .or_else(|| part.pointer("/source/data"))
            .or_else(|| part.pointer("/source/url"));
        if part["type"]
            .as_str()
            .is_some_and(|kind| kind.contains("image"))
            && let Some(place) = place.and_then(Value::as_str)
        {
            self.pictures.push(place);
        }
    }

    fn chat(&mut self, index: usize, message: &'a Value) {
        let role = role(text(message, "role"));
        self.push(role, index, message);
        let content = message.get("content").unwrap_or(&Value::Null);
        self.content(content);
        if role == Role::Tool {
            let said = said(content);
            self.turn()
                .results
                .push((text(message, "tool_call_id"), said));
        }
        for call in message
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let function = call.get("function").unwrap_or(&Value::Null);
            self.turn().calls.push(Call {
                id: text(call, "id"),
                name: text(function, "name"),
                arguments: function.get("arguments").unwrap_or(&Value::Null),
            });
        }
    }

    fn message(&mut self, index: usize, message: &'a Value) {
        let role = role(text(message, "role"));
        let content = message.get("content").unwrap_or(&Value::Null);
        let Some(blocks) = content.as_array() else {
            self.push(role, index, message);
            self.content(content);
            return;
        };
        for block in blocks {
            let kind = text(block, "type");
            let role = if kind == "tool_result" {
                Role::Tool
            } else {
                role
            };
            let same = self
                .turns
                .last()
                .is_some_and(|turn| turn.role == role && turn.index == index);
            if !same {
                self.push(role, index, message);
            }
            match kind {
                "tool_result" => {
                    let content = block.get("content").unwrap_or(&Value::Null);
                    self.content(content);
                    let said = said(content);
                    self.turn().results.push((text(block, "tool_use_id"), said));
                }
                "tool_use" => self.turn().calls.push(Call {
                    id: text(block, "id"),
                    name: text(block, "name"),
                    arguments: block.get("input").unwrap_or(&Value::Null),
                }),
                _ => {
                    if let Some(text) = block.get("text") {
                        self.text(text);
                    }
                    self.picture(block);
                }
            }
        }
    }

    fn item(&mut self, index: usize, item: &'a Value) {
        let kind = item
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("message");
        let role = match kind {
            "function_call" | "reasoning" => Role::Assistant,
            "function_call_output" => Role::Tool,
            _ => role(text(item, "role")),
        };
        let same = role == Role::Assistant
            && self
                .turns
                .last()
                .is_some_and(|turn| turn.role == Role::Assistant);
        if !same {
            self.push(role, index, item);
        }
        match kind {
            "function_call" => self.turn().calls.push(Call {
                id: text(item, "call_id"),
                name: text(item, "name"),
                arguments: item.get("arguments").unwrap_or(&Value::Null),
            }),
            "function_call_output" => {
                let output = item.get("output").unwrap_or(&Value::Null);
                self.content(output);
                let said = said(output);
                self.turn().results.push((text(item, "call_id"), said));
            }
            _ => self.content(item.get("content").unwrap_or(&Value::Null)),
        }
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn said(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.get("text").and_then(Value::as_str))
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

fn role(text: &str) -> Role {
    match text {
        "system" | "developer" => Role::System,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => Role::User,
    }
}

fn tool(tool: &Value) -> Tool<'_> {
    let function = tool.get("function").unwrap_or(tool);
    Tool {
        name: text(function, "name"),
        schema: function
            .get("parameters")
            .or_else(|| function.get("input_schema")),
    }
}

fn schema(body: &Value) -> Option<&Value> {
    [
        "/response_format/json_schema/schema",
        "/text/format/schema",
        "/output_config/format/schema",
    ]
    .iter()
    .find_map(|pointer| body.pointer(pointer))
}

fn forced(body: &Value) -> Option<Forced<'_>> {
    let choice = body.get("tool_choice")?;
    if let Some(word) = choice.as_str() {
        return matches!(word, "required" | "any").then_some(Forced::Any);
    }
    if choice["type"] == "any" {
        return Some(Forced::Any);
    }
    let name = choice
        .pointer("/function/name")
        .or_else(|| choice.get("name"));
    name.and_then(Value::as_str).map(Forced::Named)
}
