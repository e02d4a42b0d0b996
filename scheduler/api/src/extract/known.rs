//! Says of an unknown member what was probably meant, by the API's own description.

use axum::extract::MatchedPath;
use axum::http::Method;
use mainspring_scheduler::error::{Error, FieldError};
use mainspring_shared::wording::{UNKNOWN, instead};
use serde_json::{Map, Value};

use crate::openapi::DOCUMENT;

/// How many references and alternatives are followed; schemas may contain themselves.
const DEPTH_MAX: u8 = 8;

/// Members of other APIs that people send here: the beginning of the route, the end of the pointer to the object with
/// `*` for a place in a list, the member, and what to write instead.
const HABITS: [(&str, &[&str], &str, &str); 6] = [
    ("", &["input", "*"], "role", MESSAGES),
    ("", &["input", "*"], "content", MESSAGES),
    (
        "",
        &["agent"],
        "agents",
        "a file of several agents is published with `mainspring agents apply`",
    ),
    ("", &["tools", "*"], "function", FUNCTION),
    ("/v1/timers", &[], "agent", FRESH),
    ("/v1/timers", &[], "session", FRESH),
];

/// A timer that starts a conversation.
const FRESH: &str = "a timer that starts a new session each time has a `run` of one node: {\"run\": {\"spec\": {\"name\": …, \
                     \"root\": {\"type\": \"agent\", \"id\": …, \"agent\": …, \"input\": …}}}, …}";

const MESSAGES: &str = "the input is a text or a list of parts like {\"type\": \"text\", \"text\": …}, not of messages; \
                        the session has the earlier ones";

/// The tool of other APIs that the caller runs.
const FUNCTION: &str = "a function that your own program runs is {\"type\": \"external\", \"name\": …, \"description\": …, \
                        \"parameters\": …}";

/// The error, with what was probably meant by its unknown members.
pub(super) fn advised(error: Error, method: &Method, route: Option<&MatchedPath>) -> Error {
    let Some(route) = route else {
        return error;
    };
    let method = method.as_str().to_ascii_lowercase();
    let body = &DOCUMENT["paths"][route.as_str()][method]["requestBody"]["content"];
    let schema = &body["application/json"]["schema"];
    error.saying(|field| meant((route.as_str(), schema), field))
}

/// What to say of a member, if more can be said than was.
fn meant((route, schema): (&str, &Value), field: &FieldError) -> Option<String> {
    let (object, name) = field.pointer.rsplit_once('/')?;
    let path: Vec<&str> = object.split('/').skip(1).collect();
    if field.detail.contains("not \"function\"") && path.contains(&"tools") {
        return Some(format!("{}; {FUNCTION}", field.detail));
    }
    if !field.detail.starts_with(UNKNOWN) {
        return None;
    }
    let name = name.replace("~1", "/").replace("~0", "~");
    let habit = HABITS.iter().find(|(begin, end, habit, _)| {
        let fits = if end.is_empty() {
            path.is_empty()
        } else {
            ends(&path, end)
        };
        *habit == name && fits && route.starts_with(begin)
    });
    if let Some((_, _, _, advice)) = habit {
        return Some(format!("{UNKNOWN}: {advice}"));
    }
    let members = path.iter().try_fold(vec![schema], |found, part| {
        let inner: Vec<_> = found
            .iter()
            .flat_map(|schema| child(schema, part, 0))
            .collect();
        (!inner.is_empty()).then_some(inner)
    })?;
    let mut known = Map::new();
    for schema in members {
        collect(schema, &mut known, 0);
    }
    let within = known.iter().filter(|(_, schema)| {
        let mut inner = Map::new();
        collect(schema, &mut inner, 0);
        inner.contains_key(&name)
    });
    let within: Vec<_> = within.map(|(member, _)| format!("{member:?}")).collect();
    if !within.is_empty() {
        return Some(format!(
            "{UNKNOWN}: it belongs into {}",
            within.join(" or ")
        ));
    }
    if field.detail != UNKNOWN {
        return None;
    }
    let instead = instead(&name, known.keys().map(String::as_str))?;
    Some(format!("{UNKNOWN}: {instead}"))
}

fn ends(path: &[&str], end: &[&str]) -> bool {
    let Some(from) = path.len().checked_sub(end.len()) else {
        return false;
    };
    let is_place = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let pairs = path[from..].iter().zip(end);
    let mut pairs = pairs.map(|(part, end)| part == end || (*end == "*" && is_place(part)));
    pairs.all(|fits| fits)
}

/// The schemas that a schema refers to, or has as alternatives.
fn forms(schema: &Value) -> Vec<&Value> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return vec![&DOCUMENT["components"]["schemas"][name]];
    }
    let several = ["oneOf", "anyOf", "allOf"].iter();
    several
        .filter_map(|kind| schema[kind].as_array())
        .flatten()
        .collect()
}

/// The schemas of one member or element.
fn child<'s>(schema: &'s Value, part: &str, depth: u8) -> Vec<&'s Value>
where
    'static: 's,
{
    let own = [&schema["properties"][part], &schema["items"]];
    let mut found: Vec<_> = own
        .into_iter()
        .filter(|schema| schema.is_object())
        .collect();
    if depth < DEPTH_MAX {
        let forms = forms(schema).into_iter();
        found.extend(forms.flat_map(|form| child(form, part, depth + 1)));
    }
    found
}

/// Collects the members of an object's schema.
fn collect(schema: &Value, known: &mut Map<String, Value>, depth: u8) {
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        known.entry(name.clone()).or_insert_with(|| member.clone());
    }
    if depth < DEPTH_MAX {
        for form in forms(schema) {
            collect(form, known, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &str, pointer: &str) -> String {
        let schema = &DOCUMENT["paths"][path]["post"]["requestBody"]["content"];
        let field = FieldError {
            pointer: pointer.to_owned(),
            detail: UNKNOWN.to_owned(),
        };
        let said = meant((path, &schema["application/json"]["schema"]), &field);
        said.unwrap_or_default()
    }

    #[test]
    fn an_unknown_member_is_told_what_was_probably_meant() {
        for (path, pointer, says) in [
            (
                "/v1/sessions",
                "/agent/system",
                "did you mean \"system_prompt\"?",
            ),
            (
                "/v1/sends",
                "/session/agent/tols",
                "did you mean \"tools\"?",
            ),
            ("/v1/sends", "/agent", "it belongs into "),
            ("/v1/sends", "/agent", "\"session\""),
            ("/v1/sends", "/input/0/role", "not of messages"),
            (
                "/v1/sends",
                "/session/agent/agents",
                "mainspring agents apply",
            ),
            ("/v1/timers", "/sesion_id", "did you mean \"session_id\"?"),
            ("/v1/timers", "/session", "has a `run` of one node"),
            ("/v1/keys", "/zebra", "there are: "),
        ] {
            let said = told(path, pointer);
            assert!(said.contains(says), "{path} {pointer}: {said}");
        }
        assert_eq!(told("/v1/nothing", "/x"), "");
    }
}
