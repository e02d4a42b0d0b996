//! The resources and prompts of a server, as tools of the model: offered to agents that ask for
//! them, if the server has any.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::message::ContentPart;
use mainspring_shared::tool::{McpTools, Repeat, schema};
use rmcp::model::JsonObject;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::client::Limits;
use super::connection::Connection;
use super::fault::Fault;
use super::output;
use super::server::Server;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// Elements of a list that are shown; the model is told that there are more.
const SHOWN_MAX: usize = 500;

/// Characters of a description in a list.
const WORDS_CHARS_MAX: usize = 300;

/// How much later than the tool itself the kernel times out.
const MARGIN: Duration = Duration::from_secs(5);

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::ListResources => "list_resources",
            Self::ReadResource => "read_resource",
            Self::ListPrompts => "list_prompts",
            Self::GetPrompt => "get_prompt",
        }
    }

    fn words(self, server: &str) -> String {
        match self {
            Self::ListResources => {
                format!("Lists the resources of {server}: documents and data that it can give.")
            }
            Self::ReadResource => format!("Reads a resource of {server} by its address."),
            Self::ListPrompts => {
                format!("Lists the prompts of {server}: instructions that it has prepared.")
            }
            Self::GetPrompt => format!("Reads a prompt of {server}, filled in with arguments."),
        }
    }

    fn parameters(self) -> Value {
        match self {
            Self::ListResources | Self::ListPrompts => schema::any_object(),
            Self::ReadResource => json!({
                "type": "object", "required": ["uri"], "properties": {
                    "uri": {"type": "string", "description": "Its address, from the list."},
                },
            }),
            Self::GetPrompt => json!({
                "type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string", "description": "Its name, from the list."},
                    "arguments": {
                        "type": "object", "additionalProperties": {"type": "string"},
                        "description": "Its arguments by name.",
                    },
                },
            }),
        }
    }
}

/// The tools that an agent asked for to read what this server has. Asking for them does not start
/// the server: one that has nothing says so when it is asked.
pub(super) fn tools(server: &Arc<Server>, wanted: &McpTools) -> Vec<Arc<dyn Tool>> {
    let mut kinds = Vec::new();
    if wanted.resources {
        kinds.extend([Kind::ListResources, Kind::ReadResource]);
    }
    if wanted.prompts {
        kinds.extend([Kind::ListPrompts, Kind::GetPrompt]);
    }
    let made = |kind: Kind| {
        let tool: Arc<dyn Tool> = Arc::new(Reader {
            server: server.clone(),
            kind,
            spec: ToolSpec {
                name: format!("{}{}", wanted.prefix, kind.name()),
                description: kind.words(server.name()),
                parameters: kind.parameters(),
            },
        });
        tool
    };
    kinds.into_iter().map(made).collect()
}

#[derive(Debug)]
struct Reader {
    server: Arc<Server>,
    kind: Kind,
    spec: ToolSpec,
}

impl Reader {
    /// Reads; once more over a new connection if the first one turns out to be useless.
    async fn read(&self, invocation: &Invocation) -> Result<Output, Fault> {
        match self.read_once(invocation).await {
            Err(Fault::Unreached(_) | Fault::Broken(_)) => self.read_once(invocation).await,
            over => over,
        }
    }

    async fn read_once(&self, invocation: &Invocation) -> Result<Output, Fault> {
        let connection = self.server.connection().await;
        let connection = connection.map_err(|error| Fault::Away(error.to_string()))?;
        let read = self.read_over(&connection, invocation).await;
        if matches!(read, Err(Fault::Unreached(_) | Fault::Broken(_))) {
            self.server.give_up(&connection).await;
        }
        read
    }

    async fn read_over(
        &self,
        connection: &Connection,
        invocation: &Invocation,
    ) -> Result<Output, Fault> {
        let list = |method, member| connection.list(method, member, SHOWN_MAX + 1);
        match self.kind {
            Kind::ListResources => {
                let resources = list("resources/list", "resources").await?;
                // Many servers have none and do not know the request.
                let templates = list("resources/templates/list", "resourceTemplates").await;
                let mut lines = listed(&resources, resource_line);
                lines.push_str(&listed(&templates.unwrap_or_default(), resource_line));
                Ok(Output::text(or_none(lines, "no resources")))
            }
            Kind::ListPrompts => {
                let prompts = list("prompts/list", "prompts").await?;
                Ok(Output::text(or_none(
                    listed(&prompts, prompt_line),
                    "no prompts",
                )))
            }
            Kind::ReadResource | Kind::GetPrompt => {
                let (method, params) = self.request(&invocation.arguments);
                let limit = self.server.settings.timeout;
                let limits = Limits {
                    idle: limit,
                    total: limit.max(self.server.settings.timeout_max),
                };
                let said = connection
                    .request(method, params, invocation, limits)
                    .await?;
                Ok(Output {
                    content: contents(self.kind, said),
                    ..Output::default()
                })
            }
        }
    }

    fn request(&self, arguments: &JsonObject) -> (&'static str, JsonObject) {
        let (method, members): (_, &[&str]) = match self.kind {
            Kind::GetPrompt => ("prompts/get", &["name", "arguments"]),
            Kind::ReadResource | Kind::ListResources | Kind::ListPrompts => {
                ("resources/read", &["uri"])
            }
        };
        let given = members.iter().filter_map(|name| {
            let value = arguments.get(*name)?;
            Some(((*name).to_owned(), value.clone()))
        });
        (method, given.collect())
    }
}

fn or_none(lines: String, none: &str) -> String {
    if lines.is_empty() {
        none.to_owned()
    } else {
        lines
    }
}

/// The lines of a list. An element that has no address or name is left out: nobody could read it.
fn listed(elements: &[Value], line: fn(&Value) -> Option<String>) -> String {
    let mut lines: String = elements.iter().take(SHOWN_MAX).filter_map(line).collect();
    if elements.len() > SHOWN_MAX {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "[there are more, not shown]");
    }
    lines
}

fn word<'a>(element: &'a Value, name: &str) -> Option<&'a str> {
    let word = element.get(name)?.as_str()?.trim();
    (!word.is_empty()).then_some(word)
}

fn described(mut line: String, element: &Value) -> String {
    if let Some(words) = word(element, "description") {
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let words: String = words.chars().take(WORDS_CHARS_MAX).collect();
        let _ = write!(line, ": {words}");
    }
    line + "\n"
}

fn resource_line(element: &Value) -> Option<String> {
    let uri = word(element, "uri").or_else(|| word(element, "uriTemplate"))?;
    let name = word(element, "title").or_else(|| word(element, "name"));
    let about = [name, word(element, "mimeType")];
    let about: Vec<&str> = about.into_iter().flatten().collect();
    let line = match about.as_slice() {
        [] => uri.to_owned(),
        about => format!("{uri} ({})", about.join(", ")),
    };
    Some(described(line, element))
}

fn prompt_line(element: &Value) -> Option<String> {
    let name = word(element, "name")?;
    let arguments = element.get("arguments").and_then(Value::as_array);
    let arguments = arguments.into_iter().flatten().filter_map(|argument| {
        let name = word(argument, "name")?;
        let needed = argument.get("required") == Some(&Value::Bool(true));
        Some(if needed {
            name.to_owned()
        } else {
            format!("{name}?")
        })
    });
    let arguments: Vec<String> = arguments.collect();
    Some(described(
        format!("{name}({})", arguments.join(", ")),
        element,
    ))
}

/// The parts of what was read, each by itself.
fn contents(kind: Kind, mut said: Value) -> Vec<ContentPart> {
    let member = if kind == Kind::GetPrompt {
        "messages"
    } else {
        "contents"
    };
    let Some(Value::Array(elements)) = said.get_mut(member).map(Value::take) else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    for mut element in elements.into_iter().take(SHOWN_MAX) {
        if kind == Kind::GetPrompt {
            let role = word(&element, "role").unwrap_or("user");
            parts.push(ContentPart::text(format!("{role}:")));
            parts.extend(output::contents(
                element.get_mut("content").map(Value::take),
            ));
        } else {
            parts.push(output::resource(&mut element));
        }
    }
    parts
}

#[async_trait]
impl Tool for Reader {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn traits(&self) -> Traits {
        let settings = &self.server.settings;
        let call = settings.timeout.max(settings.timeout_max);
        Traits {
            timeout: call
                .saturating_add(settings.start_timeout)
                .saturating_add(MARGIN),
            ..Traits::new(Repeat::Safe)
        }
    }

    fn kind(&self) -> &'static str {
        "mcp"
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let settings = &self.server.settings;
        let limit = settings.timeout.max(settings.timeout_max);
        let read = tokio::select! {
            biased;
            () = invocation.stop.cancelled() => return Err(ToolError::Reply {
                code: Code::ToolInterrupted,
                message: "the call was stopped before the server answered".to_owned(),
            }),
            read = timeout(limit, self.read(&invocation)) => read,
        };
        let fault = match read {
            Ok(Ok(output)) => return Ok(output),
            Ok(Err(fault)) => fault,
            Err(_) => Fault::Silent(limit),
        };
        let (code, message) = match fault {
            Fault::Opens(_, said) => (Code::ToolFailed, format!("the server refuses: {said}")),
            Fault::Asks(inquiry) => return Err(ToolError::Asks(inquiry)),
            Fault::Silent(limit) => (
                Code::ToolTimeout,
                format!("the server did not answer within {limit:?}"),
            ),
            Fault::Refused(code, said) => (code, format!("the server refuses: {said}")),
            Fault::Unreached(said)
            | Fault::Broken(said)
            | Fault::Failed(said)
            | Fault::Away(said) => (Code::ToolFailed, said),
        };
        let message = self.server.hidden(&message);
        Err(ToolError::Reply { code, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_element_by_element() {
        let resources = [
            json!({"uri": "file:///a", "name": "a", "mimeType": "text/plain", "description": " x\ny "}),
            json!({"uriTemplate": "db://{table}"}),
            json!({"name": "nowhere"}),
            json!(null),
        ];
        let expected = "file:///a (a, text/plain): x y\ndb://{table}\n";
        assert_eq!(listed(&resources, resource_line), expected);
        let prompts = [
            json!({"name": "review", "arguments": [{"name": "code", "required": true}, {"name": "style"}, 7]}),
            json!({"description": "nameless"}),
        ];
        assert_eq!(listed(&prompts, prompt_line), "review(code, style?)\n");
        let many = vec![json!({"uri": "x"}); SHOWN_MAX + 1];
        assert!(listed(&many, resource_line).ends_with("[there are more, not shown]\n"));
    }

    #[test]
    fn what_is_read_is_shown_part_by_part() {
        let said = json!({"contents": [{"uri": "a", "text": "b"}, {"uri": "c"}, 7]});
        let parts = contents(Kind::ReadResource, said);
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0], ContentPart::text("[a]\nb"));
        let said =
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": "do"}}]});
        let parts = contents(Kind::GetPrompt, said);
        assert_eq!(parts, [ContentPart::text("user:"), ContentPart::text("do")]);
        assert_eq!(contents(Kind::GetPrompt, json!({"messages": 3})), []);
    }
}
