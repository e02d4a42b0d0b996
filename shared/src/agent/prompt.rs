//! Prompts of sections: templates over a session's metadata and the variables that an agent declares.
//!
//! Sections are rendered once, when a session takes the agent, and stored with it, so that the text
//! before the messages is the same in all of its sends. Only the list of tools is inserted at each
//! call, from the tools on offer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AgentName, AgentRef, AgentSpec};
use crate::error::Failure;
use crate::stored::Extra;
use crate::workflow::template::{Named, Names, Work, free_names, render};

/// Maximum number of sections of a prompt.
pub const SECTIONS_MAX: usize = 50;

/// Maximum number of variables of a prompt.
pub const VARIABLES_MAX: usize = 100;

/// Maximum total size of the values of variables, in bytes of JSON.
pub const VALUES_BYTES_MAX: usize = 64 << 10;

/// Maximum total size of all rendered sections, in bytes.
pub const PROMPT_BYTES_MAX: usize = 512 << 10;

/// Maximum length of the name of a section or a variable, in characters.
const NAME_CHARS_MAX: usize = 64;

/// The name of the session's metadata in templates.
const METADATA: &str = "metadata";

/// The heading of the list of tools.
const CATALOG_HEADER: &str = "# Available tools";

/// The sections of a prompt, after the system prompt.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PromptSpec {
    /// In their order, with a blank line between them; at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<PromptSection>,
    /// Variables that sessions may set, by name; at most 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, PromptVariable>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// A section of a prompt: a text, or the list of tools.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PromptSection {
    /// What it is called in previews; unique in its prompt.
    pub name: String,
    /// A template over `metadata` and the variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The available tools with their descriptions, instead of a text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tool_catalog: bool,
    /// An expression of the template language: the section is left out if it is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// A variable that a session may set when it takes the agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PromptVariable {
    /// Its value if the session sets none; an empty text when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub default: Option<Value>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether each session has to set it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// What is added to an agent when a session takes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Bound {
    /// The published version that it is; `None` if the session defined its own spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRef>,
    /// For an agent defined inline, the published agent that started it and pays for its model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer: Option<AgentName>,
    /// The values that were set for its variables.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
    /// The rendered sections of its prompt, in order; omitted sections are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<BoundSection>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// A rendered section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundSection {
    /// Its name.
    pub name: String,
    /// Its text; `None` for the list of tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What is wrong with a prompt or with the values that a session sets, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct PromptFault {
    /// A JSON pointer into the prompt, or into the object that has `variables` as a member.
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
}

fn fault(pointer: String, detail: impl Into<String>) -> PromptFault {
    PromptFault {
        pointer,
        detail: detail.into(),
    }
}

impl PromptSpec {
    /// Everything that is wrong with it. Without faults it can be rendered for any session that
    /// sets its variables and has the metadata that it reads.
    pub fn faults(&self) -> Vec<PromptFault> {
        let mut faults = Vec::new();
        if self.sections.len() > SECTIONS_MAX {
            let detail = format!("must have at most {SECTIONS_MAX} sections");
            faults.push(fault("/sections".to_owned(), detail));
        }
        if self.variables.len() > VARIABLES_MAX {
            let detail = format!("must have at most {VARIABLES_MAX} variables");
            faults.push(fault("/variables".to_owned(), detail));
        }
        for (name, variable) in &self.variables {
            let at = format!("/variables/{}", escaped(name));
            if !is_variable(name) {
                let detail = "the name of a variable has 1 to 64 of the characters a-z, A-Z, 0-9 and _, \
                              begins with a letter and is not `metadata`";
                faults.push(fault(at.clone(), detail));
            }
            if variable.required && variable.default.is_some() {
                let detail = "is required, so its default would never be used";
                faults.push(fault(format!("{at}/default"), detail));
            }
        }
        let mut names = BTreeSet::new();
        for (place, section) in self.sections.iter().enumerate().take(SECTIONS_MAX) {
            let at = format!("/sections/{place}");
            if !is_section(&section.name) {
                let detail = "must have 1 to 64 of the characters a-z, A-Z, 0-9, ., _ and -";
                faults.push(fault(format!("{at}/name"), detail));
            } else if !names.insert(section.name.as_str()) {
                faults.push(fault(
                    format!("{at}/name"),
                    "is the name of another section",
                ));
            }
            match (&section.text, section.tool_catalog) {
                (Some(text), false) => self.check(text, &format!("{at}/text"), &mut faults),
                (None, true) => {}
                (Some(_), true) | (None, false) => {
                    let detail = "a section has either `text` or `tool_catalog: true`";
                    faults.push(fault(at.clone(), detail));
                }
            }
            if let Some(when) = &section.when {
                let pointer = format!("{at}/when");
                match condition(when) {
                    Some(template) => self.check(&template, &pointer, &mut faults),
                    None => faults.push(fault(pointer, NO_EXPRESSION)),
                }
            }
        }
        faults
    }

    fn check(&self, template: &str, pointer: &str, faults: &mut Vec<PromptFault>) {
        if template.contains('\0') {
            faults.push(fault(pointer.to_owned(), "must not contain U+0000"));
            return;
        }
        let names = match free_names(template) {
            Ok(names) => names,
            Err(detail) => {
                faults.push(fault(pointer.to_owned(), detail));
                return;
            }
        };
        let known = |name: &str| name == METADATA || self.variables.contains_key(name);
        for name in names.iter().filter(|name| !known(name)) {
            let detail = format!(
                "reads {name:?}, which is neither `metadata` nor a variable that the prompt declares"
            );
            faults.push(fault(pointer.to_owned(), detail));
        }
    }
}

const NO_EXPRESSION: &str = "must be one expression, such as `metadata.plan == \"pro\"`";

/// A template that renders to a non-empty text if the expression is true.
fn condition(expression: &str) -> Option<String> {
    let inner = expression.trim();
    let tags = ["{%", "%}", "{{", "}}", "{#", "#}"];
    let one = !inner.is_empty() && !tags.iter().any(|tag| inner.contains(tag));
    one.then(|| format!("{{% if {inner} %}}1{{% endif %}}"))
}

fn is_variable(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    begins && name.len() <= NAME_CHARS_MAX && name.bytes().all(fits) && name != METADATA
}

fn is_section(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(fits)
}

fn escaped(member: &str) -> String {
    member.replace('~', "~0").replace('/', "~1")
}

/// The values that templates read.
struct Values<'a> {
    metadata: &'a Map<String, Value>,
    prompt: &'a PromptSpec,
    set: &'a Map<String, Value>,
}

impl Names for Values<'_> {
    fn named(&self, name: &str) -> Result<Named<'_>, Failure> {
        if name == METADATA {
            let metadata = Value::Object(self.metadata.clone());
            return Ok(Named::Value(Cow::Owned(metadata)));
        }
        let declared = self.prompt.variables.get(name);
        let default = declared.and_then(|variable| variable.default.as_ref());
        let value = self.set.get(name).or(default);
        Ok(Named::Value(
            value.map_or_else(|| Cow::Owned("".into()), Cow::Borrowed),
        ))
    }
}

/// Binds an agent to a session with this metadata: sets the values of its variables and renders the
/// sections of its prompt. `agent` is the published version that it is, if any.
///
/// Fails with everything that is wrong with the values, or else with the sections that cannot be rendered.
pub fn bind(
    spec: AgentSpec,
    agent: Option<AgentRef>,
    variables: Map<String, Value>,
    metadata: &Map<String, Value>,
) -> Result<AgentSpec, Vec<PromptFault>> {
    let faults = value_faults(spec.prompt.as_ref(), &variables);
    if !faults.is_empty() {
        return Err(faults);
    }
    let sections = match &spec.prompt {
        Some(prompt) => rendered(prompt, &variables, metadata)?,
        None => Vec::new(),
    };
    let name = agent.as_ref().map(|agent| agent.name.to_string());
    let bound = Bound {
        agent,
        payer: None,
        variables,
        sections,
        extra: Extra::default(),
    };
    Ok(AgentSpec {
        name: name.or(spec.name),
        bound: (bound != Bound::default()).then(|| Box::new(bound)),
        ..spec
    })
}

/// Binds an agent that replaces a session's previous one: without new values, it keeps those
/// earlier values whose variables it declares.
///
/// Fails like [`bind`].
pub fn take_over(
    spec: AgentSpec,
    agent: Option<AgentRef>,
    before: Map<String, Value>,
    metadata: &Map<String, Value>,
) -> Result<AgentSpec, Vec<PromptFault>> {
    let declared = spec.prompt.as_ref().map(|prompt| &prompt.variables);
    let kept = before.into_iter();
    let kept = kept.filter(|(name, _)| declared.is_some_and(|all| all.contains_key(name)));
    let kept = kept.collect();
    bind(spec, agent, kept, metadata)
}

fn value_faults(prompt: Option<&PromptSpec>, values: &Map<String, Value>) -> Vec<PromptFault> {
    let mut faults = Vec::new();
    let declared = |name: &str| prompt.is_some_and(|prompt| prompt.variables.contains_key(name));
    for (name, value) in values {
        let at = format!("/variables/{}", escaped(name));
        if !declared(name) {
            faults.push(fault(at, "the agent declares no variable of this name"));
        } else if value.to_string().contains("\\u0000") {
            faults.push(fault(at, "must not contain U+0000"));
        }
    }
    for (name, variable) in prompt.iter().flat_map(|prompt| &prompt.variables) {
        if variable.required && !values.contains_key(name) {
            let at = format!("/variables/{}", escaped(name));
            faults.push(fault(at, "is required by the agent"));
        }
    }
    if serde_json::to_vec(values).map_or(true, |json| json.len() > VALUES_BYTES_MAX) {
        let detail = "must have at most 64 KiB of JSON";
        faults.push(fault("/variables".to_owned(), detail));
    }
    faults
}

fn rendered(
    prompt: &PromptSpec,
    set: &Map<String, Value>,
    metadata: &Map<String, Value>,
) -> Result<Vec<BoundSection>, Vec<PromptFault>> {
    let values = Values {
        metadata,
        prompt,
        set,
    };
    let (mut sections, mut faults) = (Vec::new(), Vec::new());
    // All sections together may cost as much as one rendering.
    let work = Work::of_rendering();
    let mut bytes = 0;
    for section in &prompt.sections {
        match shown(section, &values, &work) {
            Ok(Some(shown)) => {
                bytes += shown.text.as_ref().map_or(0, String::len);
                sections.push(shown);
            }
            Ok(None) => {}
            Err(failure) => {
                let detail = format!(
                    "section {:?} of the agent's prompt cannot be rendered: {}",
                    section.name, failure.message
                );
                faults.push(fault("/agent".to_owned(), detail));
            }
        }
    }
    if bytes > PROMPT_BYTES_MAX {
        let detail = format!("the rendered prompt has more than {PROMPT_BYTES_MAX} bytes");
        faults.push(fault("/agent".to_owned(), detail));
    }
    if faults.is_empty() {
        Ok(sections)
    } else {
        Err(faults)
    }
}

/// Renders a section; `None` if it is left out.
fn shown(
    section: &PromptSection,
    values: &Values<'_>,
    work: &Work<'_>,
) -> Result<Option<BoundSection>, Failure> {
    if let Some(template) = section.when.as_deref().and_then(condition)
        && render(&template, values, work)?.is_empty()
    {
        return Ok(None);
    }
    let name = section.name.clone();
    if section.tool_catalog {
        return Ok(Some(BoundSection { name, text: None }));
    }
    let text = render(section.text.as_deref().unwrap_or_default(), values, work)?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| BoundSection {
        name,
        text: Some(text.to_owned()),
    }))
}

/// The text before the messages: the agent's system prompt, or `instead` if a send replaces it, and
/// the sections of its prompt. `tools` are the names and descriptions of the tools on offer. A
/// function of the bound agent and the tools, so that it stays the same between sends.
pub fn assemble<'t>(
    agent: &AgentSpec,
    instead: Option<&str>,
    tools: impl Iterator<Item = (&'t str, &'t str)>,
) -> Option<String> {
    let own = instead.or(agent.system_prompt.as_deref());
    let own = own.filter(|text| !text.trim().is_empty());
    let sections = agent.bound.as_ref().map(|bound| bound.sections.as_slice());
    let sections = sections.filter(|_| instead.is_none()).unwrap_or_default();
    if sections.is_empty() {
        return own.map(str::to_owned);
    }
    let mut catalog = None;
    if sections.iter().any(|section| section.text.is_none()) {
        catalog = tool_catalog(tools);
    }
    let texts = sections
        .iter()
        .filter_map(|section| section.text.as_deref().or(catalog.as_deref()));
    let paragraphs: Vec<&str> = own.into_iter().chain(texts).collect();
    (!paragraphs.is_empty()).then(|| paragraphs.join("\n\n"))
}

/// The list of tools, by name; `None` if there are none.
fn tool_catalog<'t>(tools: impl Iterator<Item = (&'t str, &'t str)>) -> Option<String> {
    let by_name: BTreeMap<&str, &str> = tools.collect();
    if by_name.is_empty() {
        return None;
    }
    let mut text = CATALOG_HEADER.to_owned();
    for (name, description) in by_name {
        // One line each, so that no description can look like a section of its own.
        let line = description.split_whitespace().collect::<Vec<_>>().join(" ");
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- {name}: {line}");
    }
    Some(text)
}

#[cfg(test)]
mod tests;
