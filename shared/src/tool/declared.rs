//! Tool declarations of agents.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::call::Repeat;
use super::preset;
use super::request::HttpRequest;
use super::schema;
use crate::error::Failure;
use crate::stored::Extra;
use crate::time::Span;
use crate::workflow::template::{Named, Names, Work, free_names, render};

/// Maximum number of tools that one agent may declare; more than any model can keep apart.
pub const TOOLS_MAX: usize = 256;

/// Maximum length of a tool's name in characters; every provider accepts this.
const NAME_CHARS_MAX: usize = 64;

/// Maximum bytes of a digest template.
const DIGEST_TEMPLATE_BYTES_MAX: usize = 2_000;

/// The names that a digest template may read.
const DIGEST_NAMES: [&str; 2] = ["arguments", "output"];

/// Maximum number of patterns in the schemas of one agent's tools: each is compiled when the agent
/// is accepted.
const PATTERNS_MAX: usize = 256;

/// One entry of `agent.tools`.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[expect(
    clippy::large_enum_variant,
    reason = "an agent has a few dozen of them, most of which are declared"
)]
pub enum ToolEntry {
    /// A preset (`core`, `explore`, `full`) or the name of a tool that the workers have.
    Named(String),
    /// A tool with everything that is needed to call it.
    Declared(DeclaredTool),
}

// Implemented by hand, since serde's untagged enums lose the error of a member.
impl<'de> Deserialize<'de> for ToolEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = ToolEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool's name, or an object with a `type`")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<ToolEntry, E> {
                Ok(ToolEntry::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ToolEntry, A::Error> {
                DeclaredTool::deserialize(MapAccessDeserializer::new(map)).map(ToolEntry::Declared)
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

/// A tool that an agent declares by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum DeclaredTool {
    /// A worker calls a URL.
    Http(HttpTool),
    /// Whoever started the send runs it and posts the result.
    External(ExternalTool),
    /// Tools of an MCP server that the workers are configured with.
    Mcp(McpTools),
    /// What the workers have by this name, with more to say about it.
    Worker(WorkerTool),
}

/// An HTTP tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HttpTool {
    /// The name that the model calls it by.
    pub name: String,
    /// The description for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments; any object when absent.
    #[serde(default = "schema::any_object")]
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// Where it is called. With `request`, its path may have `{argument}` in it.
    pub url: String,
    /// How an API is asked that knows nothing of tools. When absent, the call is described to the URL by `POST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<HttpRequest>>,
    /// Whether a call that may have been made is made again, after a crash of its worker or a failed attempt. `keyed`
    /// when absent: up to three attempts under one `Idempotency-Key`, which your service has to remember. `once` for
    /// whatever must not happen twice in a service that does not. With `request`, by its method when absent: `safe` for
    /// `GET`, `keyed` for `PUT` and `DELETE`, `once` for `POST` and `PATCH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Repeat)]
    pub repeat: Option<Repeat>,
    /// How long one attempt may take; 60 seconds when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub timeout: Option<Span>,
    /// Whether it may run in parallel with other calls of its round.
    #[serde(default = "yes")]
    pub parallel: bool,
    /// Whether a person has to approve each call.
    #[serde(default)]
    pub approval: bool,
    /// A template of `arguments` and `output` that says in one line what is left of a call once it is old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The workers that can call it; sends of an agent with it run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// A tool that the caller runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExternalTool {
    /// The name that the model calls it by.
    pub name: String,
    /// The description for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments; any object when absent.
    #[serde(default = "schema::any_object")]
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// Whether a call may be made again after a program that claimed it died: `once` when absent, so that nobody makes
    /// it again and the model is told that its outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// How long to wait for a result, from when it is asked for: after the approval, if there is one. Forever if not
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub deadline: Option<Span>,
    /// Whether a person has to approve each call.
    #[serde(default)]
    pub approval: bool,
    /// The workers that sends of an agent with it run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// A preset or a tool of the workers, with additional options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkerTool {
    /// A preset (`core`, `explore`, `full`) or the name of a tool that the workers have.
    pub name: String,
    /// Whether a person has to approve each call.
    #[serde(default)]
    pub approval: bool,
    /// The workers that sends of an agent with it run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// Tools of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpTools {
    /// The server's name under `[mcp.NAME]` in the workers' configuration.
    pub server: String,
    /// The server's tools on offer; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Put before each tool's name.
    #[serde(default)]
    pub prefix: String,
    /// Whether a person has to approve each call.
    #[serde(default)]
    pub approval: bool,
    /// Whether the model can list and read the server's resources.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resources: bool,
    /// Whether the model can list and read the server's prompts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompts: bool,
    /// The workers that are configured with it; sends of an agent with it run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl HttpTool {
    /// What a second execution of a call does.
    pub fn repeat(&self) -> Repeat {
        let by_method = || self.request.as_ref().map(|request| request.method.repeat());
        self.repeat.or_else(by_method).unwrap_or_default()
    }
}

impl ToolEntry {
    /// Whether it may offer a tool of this name. Only the worker knows what tools an MCP server has
    /// and what they are called.
    pub fn may_be(&self, name: &str) -> bool {
        match self {
            Self::Named(own)
            | Self::Declared(DeclaredTool::Worker(WorkerTool { name: own, .. })) => {
                preset(own).map_or(own == name, |names| names.contains(&name))
            }
            Self::Declared(DeclaredTool::Http(tool)) => tool.name == name,
            Self::Declared(DeclaredTool::External(tool)) => tool.name == name,
            Self::Declared(DeclaredTool::Mcp(_)) => true,
        }
    }

    /// Whether it names this tool of the workers, by itself or in a preset.
    pub fn is_named(&self, name: &str) -> bool {
        let is_of_workers = matches!(
            self,
            Self::Named(_) | Self::Declared(DeclaredTool::Worker(_))
        );
        is_of_workers && self.may_be(name)
    }

    /// The pool that it needs, if it names one.
    pub fn pool(&self) -> Option<&str> {
        let pool = match self {
            Self::Named(_) => return None,
            Self::Declared(DeclaredTool::Http(tool)) => &tool.pool,
            Self::Declared(DeclaredTool::External(tool)) => &tool.pool,
            Self::Declared(DeclaredTool::Mcp(tools)) => &tools.pool,
            Self::Declared(DeclaredTool::Worker(tool)) => &tool.pool,
        };
        pool.as_deref()
    }
}

/// The pool that a list of tools needs.
pub fn pool_of(tools: &[ToolEntry]) -> Option<&str> {
    tools.iter().find_map(ToolEntry::pool)
}

/// What is wrong with a pool named together with these tools.
pub fn pool_fault(pool: &str, tools: &[ToolEntry]) -> Option<String> {
    if !is_pool(pool) {
        return Some(POOL_RULE.to_owned());
    }
    let needed = pool_of(tools).filter(|needed| *needed != pool)?;
    Some(format!("must be {needed}, which one of the tools requires"))
}

const POOL_RULE: &str = "must have 1 to 40 of the characters a-z, 0-9 and -";

/// Whether this is a valid name of a pool.
pub fn is_pool(text: &str) -> bool {
    let fits = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=40).contains(&text.len()) && text.bytes().all(fits)
}

fn yes() -> bool {
    true
}

/// What is wrong with a list of tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ToolFault {
    /// Where, as a JSON pointer below the list.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}

/// Everything that is wrong with a list of tools, at once.
pub fn check(tools: &[ToolEntry]) -> Vec<ToolFault> {
    let mut faults = Vec::new();
    if tools.len() > TOOLS_MAX {
        faults.push(ToolFault {
            pointer: String::new(),
            detail: format!("an agent has at most {TOOLS_MAX} tools"),
        });
    }
    let patterns: usize = tools.iter().map(patterns).sum();
    if patterns > PATTERNS_MAX {
        faults.push(ToolFault {
            pointer: String::new(),
            detail: format!("the schemas of an agent's tools have at most {PATTERNS_MAX} patterns"),
        });
        return faults;
    }
    let mut names = BTreeSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let mut fault = |member: &str, detail: String| {
            faults.push(ToolFault {
                pointer: format!("/{index}{member}"),
                detail,
            });
        };
        if let Some(detail) = tool.pool().and_then(|pool| pool_fault(pool, tools)) {
            fault("/pool", detail);
        }
        let (member, name) = match tool {
            ToolEntry::Named(name) => ("", name),
            ToolEntry::Declared(DeclaredTool::Http(tool)) => {
                if let Some(detail) = url_fault(&tool.url) {
                    fault("/url", detail);
                }
                if let Err(inner) = schema::parameters(&tool.parameters) {
                    fault(&format!("/parameters{}", inner.pointer), inner.detail);
                }
                if tool.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
                    fault("/timeout", "must be longer than zero".to_owned());
                }
                if let Some(detail) = tool.digest.as_deref().and_then(digest_fault) {
                    fault("/digest", detail);
                }
                let request = tool.request.as_ref();
                for (member, detail) in request.iter().flat_map(|it| it.faults(&tool.url)) {
                    fault(&member, detail);
                }
                ("/name", &tool.name)
            }
            ToolEntry::Declared(DeclaredTool::External(tool)) => {
                if let Err(inner) = schema::parameters(&tool.parameters) {
                    fault(&format!("/parameters{}", inner.pointer), inner.detail);
                }
                ("/name", &tool.name)
            }
            ToolEntry::Declared(DeclaredTool::Mcp(tools)) => {
                if !tools.prefix.is_empty() && !is_name(&tools.prefix) {
                    fault("/prefix", NAME_RULE.to_owned());
                }
                ("/server", &tools.server)
            }
            ToolEntry::Declared(DeclaredTool::Worker(tool)) => ("/name", &tool.name),
        };
        if !is_name(name) {
            fault(member, NAME_RULE.to_owned());
        } else if member != "/server" && !names.insert(name.as_str()) {
            fault(member, format!("{name:?} already exists"));
        }
    }
    faults
}

/// What is wrong with the template of a digest.
fn digest_fault(template: &str) -> Option<String> {
    if template.len() > DIGEST_TEMPLATE_BYTES_MAX {
        return Some(format!(
            "must have at most {DIGEST_TEMPLATE_BYTES_MAX} bytes"
        ));
    }
    if template.contains('\0') {
        return Some("must not contain U+0000".to_owned());
    }
    let names = match free_names(template) {
        Ok(names) => names,
        Err(detail) => return Some(detail),
    };
    let other = names
        .iter()
        .find(|name| !DIGEST_NAMES.contains(&name.as_str()))?;
    Some(format!(
        "reads {other:?}, which is neither `arguments` nor `output`"
    ))
}

/// The digest of a call by its tool's template; `None` if the template reads something that does
/// not exist.
pub fn digest_by(template: &str, arguments: &Map<String, Value>, output: &Value) -> Option<String> {
    struct Call<'a>(&'a Map<String, Value>, &'a Value);
    impl Names for Call<'_> {
        fn named(&self, name: &str) -> Result<Named<'_>, Failure> {
            Ok(Named::Value(match name {
                "arguments" => Cow::Owned(Value::Object(self.0.clone())),
                _ => Cow::Borrowed(self.1),
            }))
        }
    }
    render(template, &Call(arguments, output), &Work::of_rendering()).ok()
}

fn patterns(tool: &ToolEntry) -> usize {
    match tool {
        ToolEntry::Declared(DeclaredTool::Http(tool)) => schema::patterns(&tool.parameters),
        ToolEntry::Declared(DeclaredTool::External(tool)) => schema::patterns(&tool.parameters),
        ToolEntry::Declared(DeclaredTool::Mcp(_) | DeclaredTool::Worker(_))
        | ToolEntry::Named(_) => 0,
    }
}

const NAME_RULE: &str = "must be 1 to 64 letters, digits, `_` or `-`";

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(fits)
}

/// What is wrong with the URL of a service, if anything.
pub fn url_fault(url: &str) -> Option<String> {
    (!is_http(url)).then(|| "must be an absolute http or https URL".to_owned())
}

fn is_http(url: &str) -> bool {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(' '))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(value: Value) -> Vec<ToolEntry> {
        serde_json::from_value(value).expect("parses")
    }

    #[test]
    fn every_kind_of_entry_parses_and_prints_back() {
        let written = json!([
            "core",
            {"type": "http", "name": "a", "url": "https://x.example/a", "parameters": {"type": "object"},
             "description": "", "repeat": "safe", "timeout": "2s", "parallel": false, "approval": true},
            {"type": "external", "name": "b", "description": "d", "parameters": {"type": "object"},
             "deadline": "1h", "approval": false},
            {"type": "mcp", "server": "files", "tools": ["read"], "prefix": "fs_", "approval": false},
        ]);
        let tools = entries(written.clone());
        assert_eq!(check(&tools), []);
        assert_eq!(serde_json::to_value(&tools).expect("prints"), written);
    }

    #[test]
    fn an_unknown_member_is_named() {
        let wrong = json!({"type": "http", "name": "a", "url": "https://x", "colour": 1});
        let error = serde_json::from_value::<ToolEntry>(wrong).expect_err("refused");
        assert!(error.to_string().contains("colour"), "{error}");
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let tools = entries(json!([
            "no spaces",
            {"type": "http", "name": "a", "url": "ftp://x"},
            {"type": "external", "name": "a", "parameters": {"type": "array"}},
            {"type": "external", "name": "c", "parameters": {"type": "object", "properties": {"x": {"type": "nonsense"}}}},
            {"type": "http", "name": "d", "url": "https://x.example", "digest": "{{secret}}"},
            {"type": "http", "name": "e", "url": "https://x.example", "digest": "{{output"},
        ]));
        let faults = check(&tools);
        let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            [
                "/0",
                "/1/url",
                "/2/parameters/type",
                "/2/name",
                "/3/parameters/properties/x/type",
                "/4/digest",
                "/5/digest",
            ]
        );
    }

    #[test]
    fn a_digest_reads_the_call_and_its_output() {
        let arguments = json!({"city": "Bern"});
        let arguments = arguments.as_object().expect("an object");
        let by = |template| digest_by(template, arguments, &json!({"degrees": [20, 21]}));
        let template = "{{arguments.city}}: {{output.degrees[0]}} degrees";
        assert_eq!(by(template).as_deref(), Some("Bern: 20 degrees"));
        assert_eq!(by("{{output.wind}}"), None);
    }

    #[test]
    fn pools_are_short_and_plain() {
        assert!(is_pool("gpu-2"));
        for bad in ["", "GPU", "a_b", "a b", "ä", &"x".repeat(41)] {
            assert!(!is_pool(bad), "{bad}");
        }
    }

    #[test]
    fn all_tools_that_name_a_pool_name_the_same() {
        let tools = entries(json!([
            "shell",
            {"type": "worker", "name": "core", "pool": "gvisor"},
            {"type": "external", "name": "pay", "pool": "other"},
            {"type": "mcp", "server": "files", "pool": "B"},
        ]));
        assert_eq!(pool_of(&tools), Some("gvisor"));
        let faults = check(&tools);
        let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(pointers, ["/2/pool", "/3/pool"]);
        assert_eq!(pool_fault("gvisor", &tools), None);
        assert!(pool_fault("default", &tools).is_some());
        assert_eq!(pool_fault("default", &[]), None);
    }
}
