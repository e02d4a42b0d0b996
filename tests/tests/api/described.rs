//! What the description says that an operation can answer: every answer of every test here is held against it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;

use crate::client::Answer;

/// An operation, and the codes of problems that it can give.
#[derive(Debug)]
struct Described {
    method: String,
    /// The parts of its path between slashes.
    parts: Vec<String>,
    codes: BTreeSet<String>,
}

static OPERATIONS: LazyLock<Vec<Described>> = LazyLock::new(|| {
    let document = include_str!("../../../docs/openapi.json");
    let document: Value = serde_json::from_str(document).expect("is JSON");
    let common = texts(&document["x-common-codes"]);
    assert!(common.len() > 10, "{common:?}");
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("has paths") {
        for (method, operation) in item.as_object().expect("has operations") {
            let responses = operation["responses"].as_object().expect("has responses");
            let own = responses.values().flat_map(|one| texts(&one["x-codes"]));
            operations.push(Described {
                method: method.to_uppercase(),
                parts: path.split('/').map(str::to_owned).collect(),
                codes: own.chain(common.iter().cloned()).collect(),
            });
        }
    }
    operations
});

fn texts(list: &Value) -> Vec<String> {
    let texts = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// How many parts of a path are as the operation has them, if it is one of its.
fn fit(operation: &Described, path: &[&str]) -> Option<usize> {
    let ends = operation.parts.len();
    let is_open = operation
        .parts
        .last()
        .is_some_and(|part| part.ends_with('}'));
    let is_long = path.len() == ends || is_open && path.len() > ends;
    let mut literal = 0;
    for (part, found) in operation.parts.iter().zip(path) {
        if part == found {
            literal += 1;
        } else if !part.starts_with('{') {
            return None;
        }
    }
    is_long.then_some(literal)
}

/// Asserts that the description names the code of a problem.
pub(crate) fn check(method: &str, target: &str, answer: &Answer) {
    if answer.header("content-type") != Some("application/problem+json") {
        return;
    }
    let Ok(problem) = serde_json::from_str::<Value>(&answer.text) else {
        return;
    };
    let path: Vec<&str> = target
        .split('?')
        .next()
        .unwrap_or(target)
        .split('/')
        .collect();
    let of_method = OPERATIONS.iter().filter(|one| one.method == method);
    let fits = of_method.filter_map(|one| Some((fit(one, &path)?, one)));
    let Some((_, operation)) = fits.max_by_key(|(literal, _)| *literal) else {
        return;
    };
    let code = problem["code"].as_str().unwrap_or_default();
    assert!(
        operation.codes.contains(code),
        "the description of {method} {} does not name {code}: {}",
        operation.parts.join("/"),
        answer.text
    );
}
