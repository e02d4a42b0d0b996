//! A fold by the user's own service: one call like that of an HTTP tool, with the same signature,
//! limits and address rules.

use std::sync::Arc;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::BootId;
use mainspring_shared::memory::Account;
use mainspring_shared::message::plain_text;
use mainspring_shared::session::fold::FoldKind;
use mainspring_shared::tool::{DeclaredTool, HttpTool, Repeat};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Fault, Job, Written};
use crate::tool::{CellOwner, Invocation, Skills, Tools};

/// The name of the service in its requests.
const NAME: &str = "fold";

/// Calls the service at `url`, from the send's cell if the agent is isolated. A repeat of the same
/// fold has the same id.
pub(crate) async fn ask(
    tools: Arc<Tools>,
    url: String,
    job: Job,
    (boot, isolated): (BootId, Option<AgentSpec>),
) -> Result<Written, Fault> {
    let declared = DeclaredTool::Http(HttpTool {
        name: NAME.to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
        url,
        request: None,
        repeat: Some(Repeat::Keyed),
        timeout: None,
        parallel: true,
        approval: false,
        digest: None,
        pool: None,
        extra: mainspring_shared::stored::Extra::default(),
    });
    let owner = CellOwner {
        session: job.key,
        send: job.send,
    };
    let isolated = isolated.as_ref().map(|agent| (owner, agent));
    let Some(tool) = tools.made(&declared, isolated).await else {
        return Err(Fault::Service(
            "this worker makes no calls over HTTP for this agent".to_owned(),
        ));
    };
    let span = &job.span;
    let session = job.key.session;
    let invocation = Invocation {
        call_id: format!(
            "fold_{session}_{}_{}_{}",
            span.from_seq, span.to_seq, span.level
        ),
        said: None,
        arguments: arguments(&job),
        session: job.key,
        send_id: job.send,
        boot,
        attempt: 1,
        stop: CancellationToken::new(),
        skills: Skills::default(),
        account: Account::default(),
        progress: crate::tool::Progress::default(),
        kept: crate::tool::Kept::default(),
        inquiring: crate::tool::Inquiring::default(),
    };
    let output = tool.call(invocation).await;
    let output = output.map_err(|error| Fault::Service(error.to_string()))?;
    let said = plain_text(&output.content);
    if output.failed {
        return Err(Fault::Service(said));
    }
    let value = output.value.or_else(|| serde_json::from_str(&said).ok());
    let text = value
        .as_ref()
        .and_then(|value| value.get("summary"))
        .and_then(Value::as_str);
    match text.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => Ok(Written {
            kind: FoldKind::Http,
            text: text.replace('\0', "\u{fffd}"),
            reply: None,
            notes: Vec::new(),
        }),
        None => Err(Fault::Service(
            "the response is not an object with a string `summary`".to_owned(),
        )),
    }
}

/// The arguments for the service: the earlier folds and the messages, as the API shows them.
fn arguments(job: &Job) -> Map<String, Value> {
    let span = &job.span;
    let folds: Vec<_> = span.folds.iter().map(|fold| json!(**fold)).collect();
    let messages: Vec<_> = span
        .messages
        .iter()
        .map(|message| json!(**message))
        .collect();
    let members = [
        ("from_seq", json!(span.from_seq)),
        ("to_seq", json!(span.to_seq)),
        ("folds", Value::Array(folds)),
        ("messages", Value::Array(messages)),
    ];
    members
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
