//! Repairs of calls that models write wrongly, each only where exactly one reading exists. They are
//! made before hooks, approvals and tools see a call, and what is stored is the repaired call, so
//! that the transcript does not teach the model its own mistake.

use mainspring_shared::message::{Arguments, ToolCall};
use serde_json::Value;

use super::offer::{Offer, Offers};

/// How many members of one call's arguments are repaired at most.
const MEMBERS_MAX: usize = 32;

/// How often one text may be JSON inside of JSON.
const LAYERS_MAX: usize = 3;

/// What was repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repair {
    /// The name had tokens of a chat template behind it, or a namespace before it.
    Name,
    /// The arguments, or a member of them, were encoded as JSON once more.
    Encoded,
    /// An optional member was `null`, which its schema does not allow.
    Null,
}

impl Repair {
    /// The name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Encoded => "encoded",
            Self::Null => "null",
        }
    }
}

/// Repairs a call in place; returns what was repaired.
pub(crate) fn repair(offers: &Offers, call: &mut ToolCall) -> Vec<Repair> {
    let mut repairs = Vec::new();
    let offer = match offers.get(&call.name) {
        Some(offer) => offer,
        None => match renamed(offers, &call.name) {
            Some(offer) => {
                call.name.clone_from(&offer.spec.name);
                repairs.push(Repair::Name);
                offer
            }
            None => return repairs,
        },
    };
    // What the model is to say again is not repaired.
    if call.arguments.fault().is_none()
        && let Some((arguments, made)) = rearranged(offer, &call.arguments)
    {
        call.arguments = arguments.into();
        repairs.extend(made);
    }
    repairs
}

/// The one tool that a wrong name stands for: what is before a template's token, or behind a
/// namespace such as `functions.`; `None` if there is none, or several.
fn renamed<'o>(offers: &'o Offers, name: &str) -> Option<&'o Offer> {
    let cut = name.split("<|").next().unwrap_or_default().trim();
    if let Some(offer) = offers.get(cut) {
        return Some(offer);
    }
    // A path is no namespace.
    let is_word = |text: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        !text.is_empty() && text.chars().all(fits)
    };
    let ends = cut
        .match_indices(['.', ':', '/'])
        .filter(|(at, _)| cut[..*at].split(['.', ':', '/']).all(is_word));
    let mut found = ends.filter_map(|(at, mark)| offers.get(&cut[at + mark.len()..]));
    let first = found.next()?;
    let is_same = |other: &Offer| other.spec.name == first.spec.name;
    found.all(is_same).then_some(first)
}

/// Arguments that fit, made of some that do not; `None` if they fit, or cannot be repaired.
fn rearranged(offer: &Offer, given: &Value) -> Option<(Value, Vec<Repair>)> {
    if !offer.schema.is_small_for(given) {
        return None;
    }
    let mut repairs = Vec::new();
    let mut value = given.clone();
    if let Value::String(text) = given {
        value = inside(text)?;
        repairs.push(Repair::Encoded);
    }
    if !value.is_object() || !offer.schema.is_small_for(&value) {
        return None;
    }
    for _ in 0..=MEMBERS_MAX {
        let faults = offer.schema.faults(&value);
        if faults.is_empty() {
            return (!repairs.is_empty()).then_some((value, repairs));
        }
        // Each fault begins with the place of what does not fit.
        let mut places = faults.iter().filter_map(|fault| fault.split_once(": "));
        let made = places.find_map(|(place, _)| member(&mut value, place))?;
        repairs.push(made);
    }
    None
}

/// Repairs the member at a place, if it is one of the two kinds that are.
fn member(value: &mut Value, place: &str) -> Option<Repair> {
    let (parent, name) = place.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    let found = value.pointer_mut(place)?;
    if let Value::String(text) = found {
        *found = inside(text)?;
        return Some(Repair::Encoded);
    }
    if !found.is_null() {
        return None;
    }
    // If it is required, the schema says so afterwards, and nothing is repaired.
    let Value::Object(members) = value.pointer_mut(parent)? else {
        return None;
    };
    members.remove(&name).map(|_| Repair::Null)
}

/// The object or array that a text is the JSON of.
fn inside(text: &str) -> Option<Value> {
    let mut text = text.to_owned();
    for _ in 0..LAYERS_MAX {
        if Arguments::read(&text).fault().is_some() {
            return None;
        }
        match serde_json::from_str(&text).ok()? {
            Value::String(deeper) => text = deeper,
            value @ (Value::Object(_) | Value::Array(_)) => return Some(value),
            Value::Null | Value::Bool(_) | Value::Number(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use mainspring_shared::send::WaitingOn;
    use mainspring_shared::tool::Repeat;
    use mainspring_shared::tool::schema::Schema;
    use serde_json::json;

    use super::*;
    use crate::tool::{Executor, ToolSpec, Traits};

    fn offers(names: &[&str]) -> Offers {
        let parameters = json!({
            "type": "object",
            "required": ["q"],
            "properties": {
                "q": {"type": "string"},
                "limit": {"type": "integer"},
                "old": {"type": ["string", "null"]},
                "list": {"type": "array", "items": {"type": "integer"}},
                "inner": {
                    "type": "object",
                    "properties": {"n": {"type": "integer"}, "a/b": {"type": "integer"}},
                },
            },
        });
        let offer = |name: &&str| Offer {
            spec: Arc::new(ToolSpec {
                name: (*name).to_owned(),
                description: String::new(),
                parameters: parameters.clone(),
            }),
            schema: Schema::compile(&parameters).expect("a schema"),
            traits: Traits::new(Repeat::Safe),
            approval: false,
            place: Executor::Outside {
                on: WaitingOn::Tool,
                deadline: None,
            },
        };
        Offers::new(
            names.iter().map(offer).collect(),
            BTreeMap::new(),
            Vec::new(),
        )
    }

    fn repaired(name: &str, arguments: Value) -> (String, Value, Vec<Repair>) {
        let mut call = ToolCall::new("c", name, arguments);
        let repairs = repair(&offers(&["read", "write"]), &mut call);
        (call.name, call.arguments.into_value(), repairs)
    }

    #[test]
    fn what_a_value_cannot_say_is_never_repaired() {
        for text in [
            r#"{"q": "x", "limit": null, "id": 25000000000000000001}"#,
            r#""{\"q\": \"x\", \"id\": 25000000000000000001}""#,
            r#""{\"q\": \"x\\u0000\"}""#,
        ] {
            let mut call = ToolCall::new("c", "read", Arguments::read(text));
            assert!(repair(&offers(&["read"]), &mut call).is_empty(), "{text}");
            assert!(call.arguments.fault().is_some(), "{text}");
        }
    }

    #[test]
    fn null_of_an_optional_member_that_may_not_be_null_is_left_out() {
        let given =
            json!({"q": "x", "limit": null, "old": null, "inner": {"n": null, "a/b": null}});
        let (_, arguments, repairs) = repaired("read", given);
        assert_eq!(arguments, json!({"q": "x", "old": null, "inner": {}}));
        assert_eq!(repairs, [Repair::Null; 3]);
    }

    #[test]
    fn null_of_a_required_member_stays() {
        let given = json!({"q": null, "limit": null});
        assert_eq!(repaired("read", given.clone()).1, given);
    }

    #[test]
    fn arguments_and_members_that_are_encoded_twice_are_read() {
        for (given, read) in [
            (json!(r#"{"q":"x"}"#), json!({"q": "x"})),
            (json!(r#""{\"q\":\"x\"}""#), json!({"q": "x"})),
            (
                json!({"q": "x", "list": "[1,2]"}),
                json!({"q": "x", "list": [1, 2]}),
            ),
            (
                json!({"q": "x", "inner": r#"{"n":1}"#}),
                json!({"q": "x", "inner": {"n": 1}}),
            ),
        ] {
            assert_eq!(repaired("read", given).1, read);
        }
    }

    #[test]
    fn what_fits_or_has_more_than_one_reading_stays_as_it_is() {
        for given in [
            json!({"q": "[1,2]"}),
            json!({"q": "{}", "limit": 1}),
            json!({"q": "x", "limit": "1"}),
            json!({"q": "x", "list": "[\"a\"]"}),
            json!("{\"q\": 1}"),
            json!("not JSON"),
            json!([1]),
        ] {
            let (_, arguments, repairs) = repaired("read", given.clone());
            assert_eq!((arguments, repairs), (given, Vec::new()));
        }
    }

    #[test]
    fn a_name_loses_template_tokens_and_a_namespace_where_one_tool_is_meant() {
        for (said, meant) in [
            ("read<|channel|>commentary", "read"),
            ("functions.read", "read"),
            ("functions.write<|constrain|>json", "write"),
            ("default_api:read", "read"),
            ("tools/read", "read"),
        ] {
            let (name, _, repairs) = repaired(said, json!({"q": "x"}));
            assert_eq!((name.as_str(), &repairs[..]), (meant, &[Repair::Name][..]));
        }
        for unknown in [
            "reader",
            "functions.",
            "<|channel|>",
            "thread",
            "Read",
            "",
            "../read",
            "/read",
        ] {
            assert_eq!(repaired(unknown, json!({})).0, unknown);
        }
        let mut both = ToolCall::new("c", "x.b.a", json!({"q": "x"}));
        assert!(repair(&offers(&["a", "b.a"]), &mut both).is_empty());
    }
}
