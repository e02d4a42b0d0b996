//! A send as a task.

use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::message::{ContentPart, Message, Role};
use mainspring_shared::send::{SendRecord, SendStatus, SendView};
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::ReadMessages;
use mainspring_shared::tool::Wants;
use serde_json::{Value, json};

use super::fault::{self, Refusal};
use crate::faces::asks::Ask;
use crate::faces::sent::Sent;
use crate::openai::listen::words;
use crate::router::Api;

/// The member of a session's metadata by which a client calls it.
pub(super) const CONTEXT: &str = "a2a_context";

/// The only artifact of a task.
pub(super) const ANSWER: &str = "answer";

/// How many messages of a session are looked through for those of a task.
const HISTORY: i64 = 200;

/// What a client calls a session.
pub(super) fn context(session: &SessionRecord) -> String {
    match session.metadata.get(CONTEXT) {
        Some(Value::String(name)) => name.clone(),
        _ => session.key.session.to_string(),
    }
}

/// Where a task is, with what a person is asked.
pub(super) fn state(send: &SendRecord, open: &[Ask]) -> &'static str {
    match send.status {
        SendStatus::Queued => "TASK_STATE_SUBMITTED",
        SendStatus::Running | SendStatus::Waiting if open.is_empty() => "TASK_STATE_WORKING",
        SendStatus::Running | SendStatus::Waiting => "TASK_STATE_INPUT_REQUIRED",
        SendStatus::Completed => "TASK_STATE_COMPLETED",
        SendStatus::Failed => "TASK_STATE_FAILED",
        SendStatus::Cancelled => "TASK_STATE_CANCELED",
    }
}

/// What people are asked.
pub(super) async fn open(app: &Api, sent: &Sent) -> Result<Vec<Ask>, Error> {
    let mut open = sent.asks(app).await?;
    open.retain(Ask::is_for_people);
    Ok(open)
}

/// The status of a task.
pub(super) fn status(sent: &Sent, open: &[Ask]) -> Value {
    let send = &sent.send;
    let at = send
        .finished_at
        .or(send.started_at)
        .unwrap_or(send.created_at);
    let mut status = json!({ "state": state(send, open), "timestamp": at });
    let mut parts = Vec::new();
    if let Some(error) = send
        .error
        .as_ref()
        .filter(|_| send.status == SendStatus::Failed)
    {
        parts.push(json!({ "text": format!("{}: {}", error.code, error.message) }));
    }
    for ask in open {
        let mut asked = json!({ "id": ask.id(), "tool": ask.call.name });
        match ask.wants() {
            Wants::Form(schema) => asked["schema"] = schema,
            Wants::Url(url) => asked["url"] = json!(url),
        }
        parts.push(json!({ "text": ask.message() }));
        parts.push(json!({ "data": asked, "mediaType": "application/json" }));
    }
    if !parts.is_empty() {
        status["message"] = json!({
            "messageId": format!("{}-status-{}", send.id, send.rounds),
            "contextId": context(&sent.session),
            "taskId": send.id,
            "role": "ROLE_AGENT",
            "parts": parts,
        });
    }
    status
}

/// The answer of a task that is completed.
pub(super) fn answer(view: &SendView) -> Option<Value> {
    let mut parts = Vec::new();
    if let Some(text) = view.output_text.as_ref().filter(|text| !text.is_empty()) {
        parts.push(json!({ "text": text }));
    }
    if let Some(output) = &view.output {
        parts.push(json!({ "data": output, "mediaType": "application/json" }));
    }
    (!parts.is_empty()).then(|| json!({ "artifactId": ANSWER, "name": ANSWER, "parts": parts }))
}

/// How much of a task is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// How many of its messages; all when absent.
    pub(super) history: Option<usize>,
    pub(super) artifacts: bool,
}

/// A task.
pub(super) async fn task(app: &Api, sent: &Sent, shown: Shown) -> Result<Value, Refusal> {
    let open = open(app, sent).await?;
    let view = sent.view();
    let mut task = json!({
        "id": view.id,
        "contextId": context(&sent.session),
        "status": status(sent, &open),
    });
    if shown.artifacts
        && view.status == SendStatus::Completed
        && let Some(answer) = answer(&view)
    {
        task["artifacts"] = json!([answer]);
    }
    if shown.history != Some(0) {
        let said = history(app, sent).await?;
        let from = said
            .len()
            .saturating_sub(shown.history.unwrap_or(usize::MAX));
        task["history"] = json!(said[from..]);
    }
    Ok(task)
}

/// What was said in a task.
async fn history(app: &App, sent: &Sent) -> Result<Vec<Value>, Refusal> {
    let session = app.store.get_session(sent.send.key).await?;
    let last = session.map_or(0, |session| session.last_seq());
    let wanted = ReadMessages {
        key: sent.send.key,
        after: (last - HISTORY).max(0),
        limit: HISTORY as u32,
    };
    let messages = app.store.read_messages(wanted).await?;
    let own = messages
        .into_iter()
        .filter(|message| message.send_id == sent.send.id);
    Ok(own.filter_map(|message| said(&message, sent)).collect())
}

fn said(message: &Message, sent: &Sent) -> Option<Value> {
    let role = match message.role {
        Role::User => "ROLE_USER",
        Role::Assistant => "ROLE_AGENT",
        Role::Tool => return None,
    };
    let (_, text) = words(&message.content);
    if text.is_empty() {
        return None;
    }
    Some(json!({
        "messageId": format!("{}-{}", message.send_id, message.seq),
        "contextId": context(&sent.session),
        "taskId": message.send_id,
        "role": role,
        "parts": [{ "text": text }],
    }))
}

/// The parts of a message, as a send has them.
pub(super) fn parts(given: &Value) -> Result<Vec<ContentPart>, Refusal> {
    let unfit = |detail: String| Refusal::of(fault::CONTENT_TYPE_NOT_SUPPORTED, detail);
    let given = given.as_array().map(Vec::as_slice).unwrap_or_default();
    let parts = given.iter().map(|part| {
        let kind = part["mediaType"].as_str().unwrap_or_default();
        let is_image = kind.starts_with("image/");
        if let Some(text) = part["text"].as_str() {
            Ok(json!({ "type": "text", "text": text }))
        } else if let Some(data) = part.get("data") {
            Ok(json!({ "type": "text", "text": data.to_string() }))
        } else if let Some(raw) = part["raw"].as_str() {
            let source = json!({ "type": "base64", "media_type": kind, "data": raw });
            if is_image {
                return Ok(json!({ "type": "image", "source": source }));
            }
            let name = part["filename"].as_str().unwrap_or("file");
            Ok(json!({ "type": "file", "name": name, "source": source }))
        } else if let Some(url) = part["url"].as_str().filter(|_| is_image) {
            Ok(json!({ "type": "image", "source": { "type": "url", "url": url } }))
        } else {
            Err(unfit(format!(
                "a part must be text, data, raw, or the url of a picture: {part}"
            )))
        }
    });
    let parts = parts.collect::<Result<Vec<Value>, Refusal>>()?;
    let read = serde_json::from_value::<crate::input::Input>(json!(parts));
    let read = read.map_err(|error| unfit(error.to_string()))?;
    Ok(read.0)
}
