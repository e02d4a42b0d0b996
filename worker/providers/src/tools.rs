//! The tools of a request as its provider is told of them: names, descriptions and schemas in the forms that it takes.
//! A tool that can't be told of is left out, never the request.
//!
//! Names are mapped both ways: hooks, approvals, the log and the tools themselves see the true ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mainspring_shared::agent::ToolChoice;
use mainspring_shared::message::ToolCall;
use mainspring_worker::llm::{Request, ToolSpec};
use serde_json::{Value, json};

use crate::metrics;
use crate::rules::{Rules, SchemaDialect, ToolChoiceWord};
use crate::schema::{Fitted, Unfit, Way, fit};
use crate::transcript::wire_name;

/// Maximum number and bytes of fitted schemas that are kept.
const KEPT_MAX: usize = 1_024;
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Ends a description that goes on elsewhere.
const GOES_ON: &str = " […]";

/// The tools of a request.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    list: Vec<Tool<'a>>,
}

/// A tool as a provider is told of it.
#[derive(Debug)]
pub(super) struct Tool<'a> {
    spec: &'a ToolSpec,
    fitted: Arc<Fitted>,
    /// The name that its provider knows.
    pub(super) name: Cow<'a, str>,
    pub(super) description: Cow<'a, str>,
    /// The schema with what the description has no room for.
    described: Option<Value>,
}

/// Whether and what the model must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    /// It decides: nothing need be said.
    Auto,
    /// It must not call any.
    None,
    /// It must call at least one.
    Required,
    /// It must call this one.
    Named(Cow<'a, str>),
}

impl<'a> Tools<'a> {
    /// The tools of a request to a provider with these rules.
    pub(super) fn of(request: &'a Request, rules: &Rules) -> Self {
        let mut list: Vec<Tool<'a>> = Vec::with_capacity(request.tools.len());
        for spec in &request.tools {
            let Ok(fitted) = &*fitted(spec, rules.schema) else {
                continue;
            };
            if list.len() == rules.tools_max {
                tracing::debug!(
                    tools_max = rules.tools_max,
                    tools = request.tools.len(),
                    "the model takes fewer tools than the agent has; the last ones are left out"
                );
                break;
            }
            let name = unique(wire_name(&spec.name), &list);
            list.push(Tool::new(spec, Arc::clone(fitted), name, rules));
        }
        Self { list }
    }

    /// All of them, in order.
    pub(super) fn list(&self) -> &[Tool<'a>] {
        &self.list
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The name that the provider knows a tool by, offered or not.
    pub(super) fn name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.list.iter().find(|tool| tool.spec.name == name) {
            Some(tool) if *tool.name != *name => Cow::Owned(tool.name.clone().into_owned()),
            Some(_) => Cow::Borrowed(name),
            None => wire_name(name),
        }
    }

    /// The arguments of an earlier call as the provider knows them: always an object.
    pub(super) fn arguments<'c>(&self, call: &'c ToolCall) -> Cow<'c, str> {
        let tool = self.list.iter().find(|tool| tool.spec.name == call.name);
        let names = tool
            .map(|tool| &tool.fitted.names)
            .filter(|names| !names.is_empty());
        match (call.arguments.value(), names) {
            (Value::Object(_), None) => call.arguments.text(),
            (object @ Value::Object(_), Some(names)) => {
                Cow::Owned(names.map(object, Way::Out).to_string())
            }
            (Value::Null, _) => Cow::Borrowed("{}"),
            // Servers refuse the whole request if it is not an object.
            (other, _) => Cow::Owned(json!({ "arguments": other }).to_string()),
        }
    }

    /// Gives calls of an answer the true names, of tools and of members of their arguments.
    pub(super) fn inward(&self, calls: &mut [ToolCall]) {
        for call in calls {
            let known = self.list.iter().find(|tool| *tool.name == *call.name);
            let meant = || self.list.iter().find(|tool| tool.spec.name == call.name);
            let Some(tool) = known.or_else(meant) else {
                continue;
            };
            if call.name != tool.spec.name {
                call.name.clone_from(&tool.spec.name);
            }
            if !tool.fitted.names.is_empty() {
                call.arguments = tool.fitted.names.map(&call.arguments, Way::In).into();
            }
        }
    }

    /// What the request's choice comes to. What the provider doesn't take is left to the model.
    pub(super) fn choice(&self, wanted: &ToolChoice, rules: &Rules, thinks: bool) -> Choice<'a> {
        let takes = |word: ToolChoiceWord| rules.tool_choice.contains(&word);
        let may_force = rules.forced_while_thinking || !thinks;
        let required = takes(ToolChoiceWord::Required) || takes(ToolChoiceWord::Any);
        match wanted {
            _ if self.is_empty() => Choice::Auto,
            ToolChoice::None if takes(ToolChoiceWord::None) => Choice::None,
            ToolChoice::Required if may_force && required => Choice::Required,
            ToolChoice::Tool(name) if may_force => {
                let tool = self.list.iter().find(|tool| tool.spec.name == *name);
                match tool {
                    Some(tool) if takes(ToolChoiceWord::Named) => Choice::Named(tool.name.clone()),
                    Some(_) if required => Choice::Required,
                    _ => Choice::Auto,
                }
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Tool(_) => {
                Choice::Auto
            }
        }
    }
}

impl<'a> Tool<'a> {
    fn new(spec: &'a ToolSpec, fitted: Arc<Fitted>, name: Cow<'a, str>, rules: &Rules) -> Self {
        let whole = if fitted.notes.is_empty() {
            Cow::Borrowed(spec.description.as_str())
        } else {
            let parts = [spec.description.trim_end()].into_iter();
            let notes = fitted.notes.iter().map(String::as_str);
            let parts = parts.chain(notes).filter(|part| !part.is_empty());
            Cow::Owned(parts.collect::<Vec<_>>().join("\n\n"))
        };
        let (description, rest) = divided(whole, rules.tool_description_max);
        let described = rest.and_then(|rest| {
            let mut schema = fitted.schema.clone()?;
            let members = schema.as_object_mut()?;
            let own = members.get("description").and_then(Value::as_str);
            let rest = own.map_or_else(|| rest.clone(), |own| format!("{rest}\n\n{own}"));
            members.insert("description".to_owned(), rest.into());
            Some(schema)
        });
        Self {
            spec,
            fitted,
            name,
            description,
            described,
        }
    }

    /// The schema of its arguments; `None` if it takes none and the provider's dialect can't say so.
    pub(super) fn parameters(&self) -> Option<&Value> {
        self.described.as_ref().or(self.fitted.schema.as_ref())
    }
}

/// A name that no other tool has.
fn unique<'a>(name: Cow<'a, str>, list: &[Tool<'_>]) -> Cow<'a, str> {
    let is_taken = |name: &str| list.iter().any(|tool| tool.name == name);
    if !is_taken(&name) {
        return name;
    }
    let numbered = |number: usize| {
        let suffix = format!("_{number}");
        let stem: String = name.chars().take(64 - suffix.len()).collect();
        format!("{stem}{suffix}")
    };
    let mut number = 2;
    while is_taken(&numbered(number)) {
        number += 1;
    }
    Cow::Owned(numbered(number))
}

/// A description of at most so many characters, and what there is no room for.
fn divided(whole: Cow<'_, str>, chars_max: usize) -> (Cow<'_, str>, Option<String>) {
    if whole.len() <= chars_max || whole.chars().count() <= chars_max {
        return (whole, None);
    }
    let room = chars_max.saturating_sub(GOES_ON.chars().count());
    let end = whole
        .char_indices()
        .nth(room)
        .map_or(whole.len(), |(at, _)| at);
    let head = &whole[..end];
    // Between two lines, sentences or words, if that isn't far.
    let breaks = ["\n", ". ", " "].iter();
    let mut breaks = breaks.filter_map(|mark| head.rfind(mark).map(|at| at + mark.len()));
    let end = breaks.find(|at| *at > head.len() / 2).unwrap_or(end);
    let rest = whole[end..].trim_start().to_owned();
    (
        Cow::Owned(format!("{}{GOES_ON}", whole[..end].trim_end())),
        Some(rest),
    )
}

type Fit = Result<Arc<Fitted>, Unfit>;

/// Fitted schemas, by the addresses of the tools and by dialect: agents offer the same tools again and again.
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    fits: BTreeMap::new(),
    bytes: 0,
});

type KeptFit = (Weak<ToolSpec>, Arc<Fit>);

struct Kept {
    fits: BTreeMap<(usize, &'static str), KeptFit>,
    bytes: usize,
}

/// The schema of a tool in a dialect.
fn fitted(spec: &Arc<ToolSpec>, dialect: SchemaDialect) -> Arc<Fit> {
    let key = (Arc::as_ptr(spec).addr(), dialect.as_str());
    // No code under this lock can panic midway, so the value is never half changed.
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // While the weak reference is held, nothing else has the address.
    if let Some((of, fit)) = kept.fits.get(&key)
        && of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, spec))
    {
        return Arc::clone(fit);
    }
    drop(kept);
    let fit = Arc::new(fit(&spec.parameters, dialect).map(Arc::new));
    if let Err(why) = &*fit {
        tracing::warn!(tool.name = spec.name, %why, "a tool is left out of requests");
        metrics::tool_left_out(dialect.as_str());
    }
    let bytes = bytes(&fit);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.fits.len() >= KEPT_MAX || kept.bytes + bytes > KEPT_BYTES_MAX {
        kept.fits.clear();
        kept.bytes = 0;
    }
    kept.bytes += bytes;
    kept.fits
        .insert(key, (Arc::downgrade(spec), Arc::clone(&fit)));
    fit
}

/// About the memory that a fitted schema takes.
fn bytes(fit: &Fit) -> usize {
    const ENTRY: usize = 256;
    let schema = fit.as_ref().ok().and_then(|fitted| fitted.schema.as_ref());
    ENTRY
        + schema.map_or(0, |schema| {
            2 * mainspring_shared::message::json_weight(schema)
        })
}

#[cfg(test)]
mod tests;
