//! Whether a request keeps a vendor's rules.

mod echo;
mod order;
mod schema;

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use self::echo::read as read_message;
pub use self::schema::fault as schema_fault;
use crate::memory::Memory;
use crate::path::{Path, Place};
use crate::rules::{Check, Condition, Is, Members, Pictures, Refusal, Rule, Rules};
use crate::view::View;

/// A rule that a request breaks, and what its refusal may say about it.
#[derive(Debug)]
pub struct Breach<'a> {
    pub rule: &'a str,
    pub silent: bool,
    pub answer: &'a Refusal,
    /// What the template of the refusal may name.
    pub words: BTreeMap<&'static str, String>,
}

/// What is known of a request when it is judged.
#[derive(Debug)]
pub struct Case<'a> {
    /// The body, with the headers as a member `header`.
    pub root: &'a Value,
    pub view: &'a View<'a>,
    /// The model's own name, whatever the request calls it.
    pub model: &'a str,
    pub conversation: &'a str,
}

/// What a check found.
type Found = BTreeMap<&'static str, String>;

/// Each breach, in the order of the file: members first, then rules.
pub fn breaches<'a>(rules: &'a Rules, case: &Case<'_>, memory: &Memory) -> Vec<Breach<'a>> {
    let mut breaches = members(rules, case);
    for rule in &rules.rule {
        if let Some(mut words) = broken(rule, case, memory) {
            words.insert("model", case.view.model.to_owned());
            breaches.push(Breach {
                rule: &rule.id,
                silent: rule.silent,
                answer: &rule.answer,
                words,
            });
        }
    }
    breaches
}

fn broken(rule: &Rule, case: &Case<'_>, memory: &Memory) -> Option<Found> {
    let holds = |condition: &Condition| first(condition, case.root).is_some();
    if !rule.is_about(case.model) || !rule.when.iter().all(holds) || rule.unless.iter().any(holds) {
        return None;
    }
    match &rule.refuse {
        Check::Value(condition) => first(condition, case.root),
        Check::Sequence(roles) => order::sequence(case.view, *roles),
        Check::Last(roles) => order::last(case.view, roles),
        Check::LaterSystem(wanted) => order::later_system(case.view).filter(|_| *wanted),
        Check::NoUser(wanted) => order::no_user(case.view).filter(|_| *wanted),
        Check::Results(results) => order::results(case.view, *results),
        Check::RepeatedIds(wanted) => order::repeated_ids(case.view).filter(|_| *wanted),
        Check::UndeclaredCalls(wanted) => order::undeclared(case.view).filter(|_| *wanted),
        Check::Schema(dialect) => case
            .view
            .tools
            .iter()
            .enumerate()
            .find_map(|(index, tool)| {
                let fault = schema::fault(dialect, tool.schema?)?;
                Some(Found::from([
                    ("index", index.to_string()),
                    ("name", tool.name.to_owned()),
                    ("at", fault.at),
                    ("value", fault.what),
                ]))
            }),
        Check::Echo(echo) => echo::fault(echo, case, memory),
        Check::Pictures(bounds) => pictures(*bounds, case.view),
        Check::Marks(most) => {
            let count = marks(case.root);
            (count > *most).then(|| Found::from([("value", count.to_string())]))
        }
    }
}

/// The first place where a condition holds.
fn first(condition: &Condition, root: &Value) -> Option<Found> {
    condition
        .at
        .places(root)
        .into_iter()
        .find(|place| holds(condition, place.value))
        .map(|place| found(&place))
}

fn found(place: &Place<'_>) -> Found {
    let value = place.value.map(|value| match value {
        Value::String(text) => text.chars().take(200).collect(),
        other => other.to_string().chars().take(200).collect(),
    });
    let index = place.index.unwrap_or_default();
    Found::from([
        ("at", place.at.clone()),
        ("index", index.to_string()),
        ("name", place.name.clone()),
        ("value", value.unwrap_or_default()),
    ])
}

/// Whether a value meets all that a condition says.
pub fn holds(condition: &Condition, value: Option<&Value>) -> bool {
    let text = value.and_then(Value::as_str);
    let number = value.and_then(Value::as_f64);
    let length = text
        .map(|text| text.chars().count())
        .or_else(|| value.and_then(Value::as_array).map(Vec::len));
    condition.is.is_none_or(|is| is_so(is, value))
        && condition
            .equals
            .as_ref()
            .is_none_or(|other| value.is_some_and(|value| same(value, other)))
        && condition
            .not
            .as_ref()
            .is_none_or(|other| value.is_some_and(|value| !value.is_null() && !same(value, other)))
        && condition
            .any_of
            .as_ref()
            .is_none_or(|list| value.is_some_and(|value| list.contains(value)))
        && condition
            .none_of
            .as_ref()
            .is_none_or(|list| value.is_some_and(|value| !list.contains(value)))
        && condition
            .matches
            .as_ref()
            .is_none_or(|pattern| text.is_some_and(|text| pattern.matches(text)))
        && condition
            .not_matches
            .as_ref()
            .is_none_or(|pattern| text.is_some_and(|text| !pattern.matches(text)))
        && condition
            .over
            .is_none_or(|bound| number.is_some_and(|number| number > bound))
        && condition
            .under
            .is_none_or(|bound| number.is_some_and(|number| number < bound))
        && condition
            .longer
            .is_none_or(|bound| length.is_some_and(|length| length > bound))
}

/// Numbers are the same whatever their form.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() < f64::EPSILON,
        _ => one == other,
    }
}

fn is_so(is: Is, value: Option<&Value>) -> bool {
    let empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    match (is, value) {
        (Is::Absent | Is::Missing, None) | (Is::Present, Some(_)) => true,
        (_, None) | (Is::Absent, Some(_)) => false,
        (Is::Null, Some(value)) => value.is_null(),
        (Is::Empty, Some(value)) => empty(value),
        (Is::Missing, Some(value)) => value.is_null() || empty(value),
        (Is::Blank, Some(value)) => {
            empty(value) || value.as_str().is_some_and(|text| text.trim().is_empty())
        }
        (Is::Text, Some(value)) => value.is_string(),
        (Is::List, Some(value)) => value.is_array(),
        (Is::Object, Some(value)) => value.is_object(),
        (Is::NotJson, Some(value)) => value
            .as_str()
            .is_some_and(|text| serde_json::from_str::<Value>(text).is_err()),
    }
}

/// Members that are unknown, of another kind, or missing.
fn members<'a>(rules: &'a Rules, case: &Case<'_>) -> Vec<Breach<'a>> {
    let mut breaches = Vec::new();
    let about = |table: &&Members| table.model.is_empty() || table.model.name(case.model);
    for (number, table) in rules
        .members
        .iter()
        .enumerate()
        .filter(|(_, table)| about(table))
    {
        let same = |other: &&Members| {
            other.at.as_ref().map(Path::as_str) == table.at.as_ref().map(Path::as_str)
        };
        // The first table for a place speaks for all of them.
        if rules.members[..number]
            .iter()
            .filter(about)
            .any(|other| same(&other))
        {
            continue;
        }
        let tables: Vec<&Members> = rules.members.iter().filter(about).filter(same).collect();
        let places = match &table.at {
            Some(at) => at.places(case.root),
            None => vec![Place {
                at: String::new(),
                index: None,
                name: String::new(),
                value: Some(case.root),
            }],
        };
        for place in &places {
            breaches.extend(members_at(&tables, place, case));
        }
    }
    breaches
}

fn members_at<'a>(tables: &[&'a Members], place: &Place<'_>, case: &Case<'_>) -> Vec<Breach<'a>> {
    let mut breaches = Vec::new();
    let Some(object) = place.value.and_then(Value::as_object) else {
        return breaches;
    };
    let breach = |table: &'a Members, answer: &'a Refusal, name: &str, value: &Value| {
        let at = [place.at.as_str(), name]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(".");
        let mut words = found(&Place {
            at,
            index: place.index,
            name: name.to_owned(),
            value: Some(value),
        });
        words.insert("model", case.view.model.to_owned());
        Breach {
            rule: &table.id,
            silent: false,
            answer,
            words,
        }
    };
    for (name, value) in object {
        // Headers are no member of the body.
        if place.at.is_empty() && name == "header" {
            continue;
        }
        match tables
            .iter()
            .find_map(|table| Some((table, table.allow.get(name)?)))
        {
            Some((_, kind)) if kind.takes(value) => {}
            Some((table, _)) => breaches.push(breach(table, &table.wrong, name, value)),
            None => {
                if let Some((table, answer)) = tables
                    .iter()
                    .find_map(|table| Some((table, table.unknown.as_ref()?)))
                {
                    breaches.push(breach(table, answer, name, value));
                }
            }
        }
    }
    for table in tables {
        for name in table
            .required
            .iter()
            .filter(|name| !object.contains_key(*name))
        {
            breaches.push(breach(table, &table.wrong, name, &Value::Null));
        }
    }
    breaches
}

/// How many blocks are marked for a cache.
fn marks(value: &Value) -> usize {
    match value {
        Value::Object(object) => object
            .iter()
            .map(|(name, value)| {
                let here = name == "cache_control" && value.is_object();
                usize::from(here) + marks(value)
            })
            .sum(),
        Value::Array(list) => list.iter().map(marks).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn pictures(bounds: Pictures, view: &View<'_>) -> Option<Found> {
    let count = view.pictures.len();
    if bounds.count_max.is_some_and(|most| count > most) {
        return Some(Found::from([("value", count.to_string())]));
    }
    view.pictures.iter().enumerate().find_map(|(index, place)| {
        let link = place.starts_with("http://") || place.starts_with("https://");
        let encoded = place.split_once("base64,").map_or(*place, |(_, data)| data);
        let large = bounds.encoded_max.is_some_and(|most| encoded.len() > most);
        ((link && bounds.no_links) || (!link && large)).then(|| {
            Found::from([
                ("index", index.to_string()),
                ("value", encoded.len().to_string()),
            ])
        })
    })
}
