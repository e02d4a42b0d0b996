//! What a script reads from the words that it is told: which answer of a list comes next.

use std::sync::Arc;

use mainspring_shared::message::{Message, Role};
use mainspring_worker::llm::Error;
use serde_json::Value;

/// The failure that a word stands for.
pub(super) fn failure(word: &str) -> Error {
    let message = "scripted".to_owned();
    match word {
        "amended" => Error::Amended {
            part: "/temperature".into(),
            message,
        },
        "gone" => Error::ModelGone { message },
        "invalid" => Error::InvalidRequest { message },
        other => panic!("no error {other}"),
    }
}

/// Rounds since the last user message, including folded ones.
pub(super) fn rounds_since(messages: &[Arc<Message>]) -> usize {
    let of = |role: Role| messages.iter().rposition(|message| message.role == role);
    match (of(Role::User), of(Role::Assistant)) {
        (Some(user), Some(answer)) if user < answer => {
            let rounds = messages[answer].round - messages[user].round + 1;
            usize::try_from(rounds).unwrap_or(0)
        }
        _ => 0,
    }
}

/// How many answers of a list were given, judging by the text said so far.
fn parts_given(list: &[Value], said: &str) -> usize {
    let mut rest = said;
    let texts = list.iter().map(|answer| match answer {
        Value::String(text) => text.as_str(),
        Value::Object(part) => part.get("cut").and_then(Value::as_str).unwrap_or_default(),
        _ => "calling",
    });
    let given = texts.take_while(|text| {
        let begins = rest.strip_prefix(text).filter(|_| !text.is_empty());
        rest = begins.unwrap_or(rest);
        begins.is_some()
    });
    given.count()
}

/// The user text of an answer to be continued, and what was said so far.
pub(super) fn going_on(shown: &[(Role, String)]) -> Option<(String, String)> {
    let [
        ..,
        (Role::User, asked),
        (Role::Assistant, said),
        (Role::User, told),
    ] = shown
    else {
        return None;
    };
    let goes_on = told.contains("Go on exactly") && asked.starts_with("stream ");
    goes_on.then(|| (asked.clone(), said.clone()))
}

/// The next answer of the most recent list; its last answer once the list is used up.
pub(super) fn listed(shown: &[(Role, String)]) -> Option<Value> {
    let (at, list) = shown
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, (role, text))| {
            let list = text
                .strip_prefix("answers ")
                .filter(|_| *role == Role::User)?;
            Some((at, list))
        })?;
    let list: Vec<Value> = serde_json::from_str(list).expect("a list is JSON");
    let answers = shown[at..].iter();
    let answers = answers.filter(|(role, _)| *role == Role::Assistant);
    let given = if list.iter().any(|answer| answer.get("cut").is_some()) {
        // The parts of a cut answer are one message, so only their text tells them apart.
        parts_given(
            &list,
            &answers.map(|(_, text)| text.as_str()).collect::<String>(),
        )
    } else {
        answers.count()
    };
    list.get(given).or(list.last()).cloned()
}
