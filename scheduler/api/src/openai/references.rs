//! Items that a request names by their ids instead of repeating them.

use std::collections::BTreeMap;

use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, Role};

use super::given::{Given, Item, push};
use super::history::Transcript;
use super::ids;
use super::listen::{Called, words};
use super::turn::sees;
use crate::access::Caller;
use crate::router::Api;

/// What the items of a request say, with those that it names.
pub(super) async fn resolved(
    app: &Api,
    caller: &Caller,
    items: Vec<Item>,
) -> Result<Vec<Given>, Error> {
    let mut given = Vec::new();
    let mut known = BTreeMap::new();
    for item in items {
        let (id, at) = match item {
            Item::Said(one) => {
                push(&mut given, one);
                continue;
            }
            // What a model thought is of no use to another one, and the session has what is.
            Item::Named { id, .. } if ids::is_reasoning(&id) => continue,
            Item::Named { id, at } => (id, at),
        };
        let unknown = || {
            let detail = format!("no item has the id {id:?}");
            Error::new(Code::SendNotFound, detail).at(&format!("{at}/id"))
        };
        let (send, plain) = ids::of_item(&id).ok_or_else(unknown)?;
        if !known.contains_key(&plain) {
            known.extend(of_session(app, caller, send).await?);
        }
        push(&mut given, known.get(&plain).cloned().ok_or_else(unknown)?);
    }
    Ok(given)
}

/// All that was said in the session of a send, by the ids of items.
async fn of_session(
    app: &Api,
    caller: &Caller,
    send: SendId,
) -> Result<BTreeMap<String, Given>, Error> {
    let Some(send) = app.watch.read_send(caller.tenant, send).await? else {
        return Ok(BTreeMap::new());
    };
    let session = app.store.get_session(send.key).await?;
    let Some(session) = session.filter(|session| sees(caller, session)) else {
        return Ok(BTreeMap::new());
    };
    let transcript = Transcript::read(app, &session).await?;
    let mut said = BTreeMap::new();
    for message in &transcript.messages {
        said.extend(of_message(message, |name| transcript.shows(message, name)));
    }
    Ok(said)
}

fn of_message(message: &Message, is_function: impl Fn(&str) -> bool) -> Vec<(String, Given)> {
    let parts = || message.content.clone();
    match message.role {
        Role::User => {
            let id = ids::input(message.send_id, message.seq);
            vec![(id, Given::User(plain(parts())))]
        }
        Role::Tool => {
            let call = message.tool_call_id.clone().unwrap_or_default();
            let output = Given::Output {
                call: call.clone(),
                parts: plain(parts()),
                at: "/input".to_owned(),
            };
            vec![(ids::output(&call), output)]
        }
        Role::Assistant => {
            let text = words(&message.content).1;
            let id = ids::message(message.send_id, message.round, None);
            let said = Given::Assistant {
                text,
                calls: Vec::new(),
            };
            let calls = message.tool_calls.iter();
            let calls = calls.filter(|call| is_function(&call.name)).map(|call| {
                let called = Called {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.text().into_owned(),
                };
                let said = Given::Assistant {
                    text: String::new(),
                    calls: vec![called],
                };
                (ids::call(&call.id), said)
            });
            [(id, said)].into_iter().chain(calls).collect()
        }
    }
}

/// The parts that a client could have sent.
fn plain(mut parts: Vec<ContentPart>) -> Vec<ContentPart> {
    parts.retain(|part| match part {
        ContentPart::Text { .. } | ContentPart::Image { .. } | ContentPart::File { .. } => true,
        ContentPart::Reasoning { .. } | ContentPart::Digest { .. } | ContentPart::Attached(_) => {
            false
        }
    });
    parts
}
