//! What is asked of the person at a client.

use mainspring_shared::tool::Wants;
use serde_json::{Value, json};

use super::peer::Peer;
use crate::access::Caller;
use crate::faces::asks::{self, Ask, Said};
use crate::faces::sent::Sent;
use crate::problem::Problem;
use crate::router::Api;

/// How the metadata names the task that a message is about.
pub(super) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// The parameters of a request that asks it, if the client can.
pub(super) fn elicitation(peer: &Peer, ask: &Ask) -> Option<Value> {
    if !ask.is_for_people() {
        return None;
    }
    let message = ask.message();
    match ask.wants() {
        Wants::Form(schema) if peer.forms => {
            Some(json!({ "mode": "form", "message": message, "requestedSchema": schema }))
        }
        Wants::Url(url) if peer.urls => Some(json!({
            "mode": "url", "message": message, "url": url, "elicitationId": ask.id(),
        })),
        Wants::Form(_) | Wants::Url(_) => None,
    }
}

/// The id of a request that asks it, from which the answer is recognized by every scheduler.
pub(super) fn request_id(sent: &Sent, ask: &Ask) -> String {
    format!("{}/{}", sent.send.id, ask.id())
}

/// Takes the client's answer to a request. What answers nothing that is open is ignored.
pub(super) async fn answered(
    app: &Api,
    caller: &Caller,
    id: &Value,
    result: &Value,
) -> Result<(), Problem> {
    let Some((send, ask)) = id.as_str().and_then(|id| id.split_once('/')) else {
        return Ok(());
    };
    let (Ok(send), Some(said)) = (send.parse(), Said::read(result)) else {
        return Ok(());
    };
    let sent = Sent::read(app, caller, send).await?;
    asks::answer(app, caller, &sent, vec![(ask.to_owned(), said)]).await
}

/// Takes the answers to what a result asked, by their names.
pub(super) async fn inputs(
    app: &Api,
    caller: &Caller,
    sent: &Sent,
    responses: &Value,
) -> Result<(), Problem> {
    let responses = responses.as_object().into_iter().flatten();
    let answers = responses.filter_map(|(id, answer)| Some((id.clone(), Said::read(answer)?)));
    asks::answer(app, caller, sent, answers.collect()).await
}

/// What a client is to answer, by names.
pub(super) fn requests(peer: &Peer, open: &[Ask]) -> Value {
    let requests = open.iter().filter_map(|ask| {
        let params = elicitation(peer, ask)?;
        Some((
            ask.id(),
            json!({ "method": "elicitation/create", "params": params }),
        ))
    });
    Value::Object(requests.collect())
}
