//! Messages to an agent: a new task, or an answer or a hint to one that is there.

use std::time::Duration;

use mainspring_scheduler::error::Error;
use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::send::WaitingOn;
use serde_json::{Value, json};

use super::fault::{self, Refusal};
use super::view::{self, CONTEXT, Shown};
use super::{Door, tasks, text};
use crate::faces::asks::{self, Ask, Said};
use crate::faces::rpc;
use crate::faces::sent::Sent;
use crate::faces::start::{Message, To, once, session_named, start};

/// How soon a question of an agent below is noticed, which wakes nobody here.
const LOOK: Duration = Duration::from_secs(2);

/// Says it, and waits until the task has ended or asks something, unless that is not wanted.
pub(super) async fn and_wait(door: &Door, params: &Value) -> Result<Value, Refusal> {
    let mut sent = say(door, params).await?;
    let config = &params["configuration"];
    if config["returnImmediately"] != true {
        until_still(door, &mut sent).await?;
    }
    let shown = Shown {
        history: tasks::history(config)?,
        artifacts: true,
    };
    view::task(&door.app, &sent, shown).await
}

async fn until_still(door: &Door, sent: &mut Sent) -> Result<(), Refusal> {
    let app = &door.app;
    // It is registered before the first read, so the end cannot be missed.
    let watcher = app.watch.session(sent.send.key);
    loop {
        sent.again(app).await?;
        if sent.is_final() || !view::open(app, sent).await?.is_empty() {
            return Ok(());
        }
        let waits_below = sent.send.waiting_on == Some(WaitingOn::Agent);
        let look = if waits_below { LOOK } else { LOOK * 8 };
        tokio::select! {
            biased;
            () = app.process.lifecycle.stopping() => return Err(Error::stopping().into()),
            () = watcher.woken() => {}
            () = app.clock.sleep(look) => {}
        }
    }
}

/// Says it: the task that it is said to.
pub(super) async fn say(door: &Door, params: &Value) -> Result<Sent, Refusal> {
    let message = &params["message"];
    if !message.is_object() {
        return Err(Refusal::of(
            rpc::INVALID_PARAMS,
            "message must be an object",
        ));
    }
    if message["role"] != "ROLE_USER" {
        return Err(Refusal::of(
            rpc::INVALID_PARAMS,
            "message.role must be ROLE_USER",
        ));
    }
    if params["configuration"]["taskPushNotificationConfig"].is_object() {
        return Err(super::no_push());
    }
    let id = text(message, "messageId")?;
    let context = message["contextId"]
        .as_str()
        .filter(|text| !text.is_empty());
    let task = message["taskId"].as_str().filter(|text| !text.is_empty());
    let (app, caller) = (&door.app, &door.caller);
    let (mut to, mut on_busy) = (To::New, OnBusy::Enqueue);
    if let Some(context) = context {
        to = session_named(CONTEXT, context);
    }
    if let Some(task) = task {
        let mut sent = tasks::named(door, task).await?;
        if context.is_some_and(|context| context != view::context(&sent.session)) {
            return Err(Refusal::of(
                rpc::INVALID_PARAMS,
                "the task is not in this context",
            ));
        }
        if sent.is_final() {
            let detail = "the task has ended; say it in its context, without its id";
            return Err(Refusal::of(fault::UNSUPPORTED, detail));
        }
        let open = view::open(app, &sent).await?;
        if !open.is_empty() {
            let answers = answers(&open, &message["parts"])?;
            asks::answer(app, caller, &sent, answers).await?;
            sent.again(app).await?;
            return Ok(sent);
        }
        (to, on_busy) = (To::Session(sent.send.key.session), OnBusy::Steer);
    }
    let variables = message["metadata"]["variables"].as_object();
    let name = format!(
        "{}\n{}\n{id}",
        context.unwrap_or_default(),
        task.unwrap_or_default()
    );
    let message = Message {
        agent: door.agent.clone(),
        variables: variables.cloned().unwrap_or_default(),
        to,
        input: view::parts(&message["parts"])?,
        options: SendOptions {
            on_busy,
            ..SendOptions::default()
        },
        once: Some(once(caller, "POST a2a", &name)),
    };
    let submitted = start(app, caller, message).await?;
    Ok(Sent::read(app, caller, submitted.send.id).await?)
}

/// What the parts of a message answer. Data answers a question by its members, several by their ids; a text answers the
/// first one.
fn answers(open: &[Ask], parts: &Value) -> Result<Vec<(String, Said)>, Refusal> {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let data = parts.iter().find_map(|part| part["data"].as_object());
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    let by_id = open
        .iter()
        .filter_map(|ask| Some((ask, data?.get(&ask.id())?.clone())));
    let mut given: Vec<(&Ask, Value)> = by_id.collect();
    if given.is_empty() {
        let whole = data.map_or_else(|| json!(texts.join("\n")), |data| json!(data));
        given.extend(open.first().map(|ask| (ask, whole)));
    }
    let read = given.into_iter().map(|(ask, given)| {
        let said = ask.read(&given, false);
        let said = said
            .map_err(|detail| Refusal::of(rpc::INVALID_PARAMS, format!("the answer {detail}")))?;
        Ok((ask.id(), said))
    });
    read.collect()
}
