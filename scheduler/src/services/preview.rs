//! Asks a worker what a session's next model call would be.
//!
//! Only workers have the tools and providers that a request is built from. A worker of the
//! session's pool is asked over the bus, and another one if it does not answer. Nothing is stored,
//! and if no worker answers, there is no preview.

use std::time::Duration;

use mainspring_shared::agent::SendOptions;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::ContentPart;
use mainspring_shared::session::preview::{Answered, Ask, Preview, PreviewLimit};

use crate::app::App;
use crate::error::Error;
use crate::services::asking::{ASKED_MAX, asked, workers};
use crate::services::{blobs, limits};

/// How long a worker may take to answer. It may have to ask MCP servers for their tools.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is previewed.
#[derive(Debug, Default)]
pub struct PreviewOf {
    /// The input and options of an imagined send; the session's next send if absent.
    pub imagined: Option<(Vec<ContentPart>, SendOptions)>,
    /// Whether to include the provider's own request.
    pub with_request: bool,
}

/// What the session's next model call would be.
pub async fn preview(app: &App, key: SessionKey, of: PreviewOf) -> Result<Preview, Error> {
    let session = app.store.get_session(key).await?;
    let session = session.ok_or_else(Error::session_not_found)?;
    let pool = session.agent.pool();
    let workers = workers(app, pool).await?;
    if workers.is_empty() {
        return Err(away(format!("no worker of the pool {pool:?} is alive")));
    }
    let (mut input, options) = of
        .imagined
        .map_or_else(Default::default, |(input, options)| (Some(input), options));
    let mut content = match &mut input {
        Some(input) => blobs::prepare_imagined(app, key.tenant, input, "/input").await?,
        None => Vec::new(),
    };
    if !of.with_request {
        content.clear();
    }
    for boot in workers.iter().take(ASKED_MAX) {
        let ask = Ask {
            id: app.entropy.random_id(),
            boot: *boot,
            key,
            input: input.clone(),
            options: options.clone(),
            content: content.clone(),
            with_request: of.with_request,
        };
        match asked(app, ask.id, &ask, PATIENCE).await {
            Some(Answered::Preview(mut preview)) => {
                // Limits of tenants and agents apply when a send is accepted, so only to one that
                // is not stored yet.
                if preview.send_id.is_none() {
                    let agent = options.agent.as_deref().unwrap_or(&session.agent);
                    let refusals = limits::refusals(app, key.tenant, agent).await?;
                    preview
                        .limits
                        .extend(refusals.into_iter().map(|why| PreviewLimit {
                            code: why.code().as_str().to_owned(),
                            detail: why.detail().to_owned(),
                        }));
                }
                return Ok(*preview);
            }
            Some(Answered::Refused { code, detail }) => return Err(Error::new(code, detail)),
            None => {}
        }
    }
    Err(away(format!(
        "no worker of the pool {pool:?} answered within {} seconds",
        PATIENCE.as_secs()
    )))
}

fn away(detail: String) -> Error {
    Error::new(Code::StoreUnavailable, detail)
}
