//! The filters and tests, and values as text. Each charges for what it reads before it reads it.

use std::borrow::Cow;

use minijinja::Value as Shown;
use minijinja::value::ValueKind;
use serde_json::Value;

use super::evaluate::Fault;
use super::value::NodeText;
use super::work::Work;

/// Maximum bytes of a filter's output.
const FILTER_BYTES_MAX: usize = 2 << 20;

/// How much more than reading a text it costs to change the case of its characters.
const CASES: u64 = 8;

/// How much more than reading a value it costs to write it as JSON.
const JSON: u64 = 4;

/// What it costs to go on to the next item.
const ITEM: u64 = 16;

/// The available filters.
pub(super) const FILTERS: &[&str] = &[
    "default", "first", "join", "last", "length", "lower", "tojson", "trim", "truncate", "upper",
];

/// The available tests.
pub(super) const TESTS: &[&str] = &["defined", "none", "undefined"];

/// A value as text: texts unchanged, nodes by their text, everything else as JSON.
pub(super) fn text_of<'v>(value: &'v Shown, work: &Work<'_>) -> Result<Cow<'v, str>, Fault> {
    if let Some(node) = value.downcast_object_ref::<NodeText>() {
        work.bytes(node.text.len())?;
        return Ok(Cow::Borrowed(&node.text));
    }
    match (value.kind(), value.as_str()) {
        (ValueKind::Undefined, _) => Err(Fault::Undefined),
        (_, Some(text)) => {
            work.bytes(text.len())?;
            Ok(Cow::Borrowed(text))
        }
        (_, None) => json_text(value, work).map(Cow::Owned),
    }
}

fn json_text(value: &Shown, work: &Work<'_>) -> Result<String, Fault> {
    for _ in 0..JSON {
        work.all_of(value)?;
    }
    serde_json::to_string(value).map_err(|error| Fault::Wrong(error.to_string()))
}

/// A value as JSON.
pub(super) fn to_json(value: &Shown, work: &Work<'_>) -> Result<Value, Fault> {
    if let Some(node) = value.downcast_object_ref::<NodeText>() {
        return Ok(if let Some(payload) = &node.payload {
            work.all_of_json(payload)?;
            payload.clone()
        } else {
            work.bytes(node.text.len())?;
            node.text.clone().into()
        });
    }
    work.all_of(value)?;
    serde_json::to_value(value).map_err(|error| Fault::Wrong(error.to_string()))
}

/// The items of a value: of a list, the keys of an object, the characters of a text.
pub(super) fn items_of(
    value: &Shown,
    work: &Work<'_>,
) -> Result<impl Iterator<Item = Shown> + use<>, Fault> {
    if value.is_undefined() {
        return Err(Fault::Undefined);
    }
    if let Some(text) = value.as_str() {
        work.bytes(text.len())?;
    }
    Ok(value.try_iter()?)
}

fn bounded(text: String) -> Result<Shown, Fault> {
    if text.len() > FILTER_BYTES_MAX {
        return Err(Fault::Wrong("a text becomes too long".to_owned()));
    }
    Ok(Shown::from(text))
}

/// Applies a filter.
pub(super) fn apply(
    name: &str,
    value: &Shown,
    arguments: &[Shown],
    work: &Work<'_>,
) -> Result<Shown, Fault> {
    let most = match name {
        "default" | "truncate" => {
            if arguments.is_empty() {
                return Err(Fault::Wrong(format!("{name} needs an argument")));
            }
            1
        }
        "join" => 1,
        _ => 0,
    };
    if arguments.len() > most {
        return Err(Fault::Wrong(format!("too many arguments for {name}")));
    }
    let argument = arguments.first();
    match name {
        "default" => Ok(match argument {
            Some(other) if value.is_undefined() || value.is_none() => other.clone(),
            _ => value.clone(),
        }),
        "tojson" if value.is_undefined() => Err(Fault::Undefined),
        "tojson" => bounded(json_text(value, work)?),
        "upper" | "lower" => {
            let text = text_of(value, work)?;
            work.charge(text.len() as u64 * CASES)?;
            bounded(match name {
                "upper" => text.to_uppercase(),
                _ => text.to_lowercase(),
            })
        }
        "trim" => Ok(text_of(value, work)?.trim().into()),
        "truncate" => {
            let chars = argument.and_then(|chars| usize::try_from(chars.clone()).ok());
            let chars = chars.ok_or_else(|| Fault::Wrong("truncate needs a number".to_owned()))?;
            let text = text_of(value, work)?;
            let end = text.char_indices().nth(chars);
            Ok(end.map_or(&*text, |(end, _)| &text[..end]).into())
        }
        "length" => length(value, work),
        "first" => Ok(items_of(value, work)?.next().unwrap_or_default()),
        "last" => {
            let mut last = None;
            for one in items_of(value, work)? {
                work.charge(ITEM)?;
                last = Some(one);
            }
            Ok(last.unwrap_or_default())
        }
        "join" => join(value, argument, work),
        _ => Err(Fault::Wrong(format!("there is no filter {name}"))),
    }
}

fn length(value: &Shown, work: &Work<'_>) -> Result<Shown, Fault> {
    if let Some(text) = value.as_str() {
        work.bytes(text.len())?;
    }
    match value.len() {
        Some(length) => Ok(length.into()),
        None => Ok(text_of(value, work)?.chars().count().into()),
    }
}

fn join(value: &Shown, between: Option<&Shown>, work: &Work<'_>) -> Result<Shown, Fault> {
    let between = match between {
        None => String::new(),
        Some(between) if between.is_none() => String::new(),
        Some(between) => text_of(between, work)?.into_owned(),
    };
    let mut out = String::new();
    for (place, one) in items_of(value, work)?.enumerate() {
        work.charge(ITEM)?;
        if place > 0 {
            work.bytes(between.len())?;
            out.push_str(&between);
        }
        out.push_str(&text_of(&one, work)?);
        if out.len() > FILTER_BYTES_MAX {
            break;
        }
    }
    bounded(out)
}

/// Whether a value passes a test.
pub(super) fn passes(name: &str, value: &Shown) -> Result<bool, Fault> {
    match name {
        "defined" => Ok(!value.is_undefined()),
        "undefined" => Ok(value.is_undefined()),
        "none" => Ok(value.is_none()),
        _ => Err(Fault::Wrong(format!("there is no test {name}"))),
    }
}
