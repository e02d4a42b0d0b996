//! Each part of a request, refused in each vendor's words.

mod history;
mod members;
mod reports;
mod tools;

use std::collections::BTreeSet;

use self::history::{empties, has_empty, ids, message_member, order, owed, pictures, reasoning};
use self::members::{efforts, limit_of, limits, members, schemas};
use self::tools::tools;
use super::*;

type Says = Box<dyn Fn(&Value) -> (u16, String) + Send + Sync>;

/// The same with the place of the part.
type SaysAt<P> = Box<dyn Fn(P) -> (u16, String) + Send + Sync>;

type Has = fn(&Value) -> bool;

/// A part that a server refuses, and how it says so.
struct Case {
    name: String,
    has: Box<dyn Fn(&Value) -> bool + Send + Sync>,
    says: Says,
    /// Top-level members that may be gone afterwards; any if it cannot be known what is refused.
    gone: Option<BTreeSet<String>>,
}

fn error(message: &str, param: Option<&str>, code: Option<&str>) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}})
        .to_string()
}

fn anthropic(message: &str) -> String {
    json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
        .to_string()
}

fn fastapi(place: &Value, kind: &str, why: &str) -> String {
    json!({"detail": [{"type": kind, "loc": place, "msg": why, "input": 1}]}).to_string()
}

/// Refusals that say nothing.
fn bare() -> Vec<(u16, String)> {
    vec![
        (400, String::new()),
        (400, error("Invalid request", None, None)),
        (400, r#"{"error":{"code":"1210","message":"API 调用参数有误，请检查文档"}}"#.to_owned()),
        (422, r#"{"detail":"Unprocessable Entity"}"#.to_owned()),
        (400, r#"{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT"}}"#.to_owned()),
    ]
}

fn cases(protocol: Protocol, body: &Value) -> Vec<Case> {
    let mut cases = members(body);
    cases.extend(tools());
    cases.extend(pictures());
    cases.extend(ids());
    cases.extend(efforts());
    cases.extend(schemas());
    let (own, _) = limit_of(body);
    cases.extend(limits(&own));
    match protocol {
        Protocol::Chat => {
            cases.extend(order());
            cases.extend(owed());
            for name in ["reasoning_content", "reasoning"] {
                if body.to_string().contains(&format!("\"{name}\":\"")) {
                    cases.extend(message_member(name));
                }
            }
        }
        Protocol::Messages => cases.extend(reasoning("c2lnbmF0dXJl")),
        Protocol::Responses => cases.extend(reasoning("gAAAencrypted")),
    }
    if has_empty(body) {
        cases.extend(empties());
    }
    cases
}

/// What one case does wrong; nothing if all is well.
async fn tried(server: &Server, model: &dyn Model, number: usize, case: Case) -> Option<String> {
    let mut request = rich_for(server.protocol, &format!("m{number}"));
    request.adaptive = case.name.starts_with("effort");
    let body = plain_body(model, &request);
    if !(case.has)(&body) {
        return Some("the part is not sent at all".to_owned());
    }
    let Case {
        has, says, gone, ..
    } = case;
    server.rule(Box::new(move |body| has(body).then(|| says(body))));
    let parts = match repaired(model, &request).await {
        Ok(parts) => parts,
        Err(error) => return Some(format!("first: {error}")),
    };
    if parts.is_empty() {
        return Some("nothing is told".to_owned());
    }
    match repaired(model, &later(&request)).await {
        Ok(parts) if parts.is_empty() => {}
        other => return Some(format!("second: {other:?}, after {parts:?}")),
    }
    let taken = server.taken.lock().expect("nobody panics");
    let kept: BTreeSet<String> = keys(&taken[0]).into_iter().collect();
    let lost: BTreeSet<String> = keys(&body)
        .into_iter()
        .filter(|name| !kept.contains(name))
        .collect();
    match gone {
        Some(gone) if !lost.is_subset(&gone) => Some(format!("lost {lost:?} by {parts:?}")),
        Some(_) | None => None,
    }
}

#[tokio::test]
async fn each_part_refused_in_each_vendors_words_is_refused_once() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for protocol in [Protocol::Chat, Protocol::Messages, Protocol::Responses] {
        let server = Server::new(protocol).await;
        let model = server.model(|_| {});
        let body = plain_body(&*model, &rich(protocol));
        let cases = cases(protocol, &body);
        server
            .during(async {
                for case in cases {
                    let name = format!("{protocol:?} {}", case.name);
                    count += 1;
                    if let Some(what) = tried(&server, &*model, count, case).await {
                        wrong.push(format!("{name}\n    {what}"));
                    }
                }
            })
            .await;
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count >= 500, "{count}");
}
