//! What responses and chat completions have in common: how a request is answered, and what a path names.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use serde_json::Value;

use super::chat::{Chunks, completion};
use super::ids::ResponseId;
use super::once::Once;
use super::stream;
use super::turn::{Asked, Mode, start};
use super::view::{Source, Stored};
use crate::access::Caller;
use crate::extract::{Json, JsonBody};
use crate::gate::Admission;
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;

/// How long a request waits before it looks again without having been woken.
const LOOK: Duration = Duration::from_secs(15);

/// Which of the two APIs a request speaks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Response,
    Completion,
}

impl Form {
    fn path(self) -> &'static str {
        match self {
            Self::Response => "/v1/responses",
            Self::Completion => "/v1/chat/completions",
        }
    }

    fn id(self, text: &str) -> Option<ResponseId> {
        match self {
            Self::Response => ResponseId::parse(text),
            Self::Completion => ResponseId::of_completion(text),
        }
    }

    fn view(self, source: &Source, stored: &Stored) -> Result<Value, Error> {
        match self {
            Self::Response => Ok(source.view(stored)),
            Self::Completion => completion(source, stored),
        }
    }
}

/// Starts what a request asks for, and answers it.
pub(super) async fn answer<B: JsonBody<Checked = Asked>>(
    app: &Arc<Api>,
    caller: &Caller,
    (form, json): (Form, Json<B>),
    admission: Admission,
) -> Result<Response, Problem> {
    let once = Once::of(caller, json.headers(), form.path(), &json.whole)?;
    let asked = json.value;
    drop(json.whole);
    let mode = asked.mode;
    let id = start(app, caller, asked, once).await?;
    let (source, stored) = match mode {
        Mode::Stream { include_usage } => {
            let source = Source::read(app, caller.tenant, id).await?;
            return Ok(match form {
                Form::Response => stream::responses(app, source, None, admission).await,
                Form::Completion => {
                    let chunks = (String::new(), Chunks::new(&source, include_usage));
                    stream::answer(app, source, chunks, admission).await
                }
            });
        }
        Mode::Later => {
            let source = Source::read(app, caller.tenant, id).await?;
            let stored = source.heard(app).await?;
            (source, stored)
        }
        Mode::Wait => until_over(app, caller, id).await?,
    };
    respond::json(StatusCode::OK, &form.view(&source, &stored)?)
}

/// Waits for the end of a response. Whoever stops waiting changes nothing.
async fn until_over(app: &Api, caller: &Caller, id: ResponseId) -> Result<(Source, Stored), Error> {
    // It is registered before the first read, so the end cannot be missed.
    let watcher = app.watch.send(id.send);
    loop {
        let source = Source::read(app, caller.tenant, id).await?;
        let stored = source.heard(app).await?;
        if stored.over.is_some() {
            return Ok((source, stored));
        }
        tokio::select! {
            biased;
            () = app.process.lifecycle.stopping() => return Err(Error::stopping()),
            () = watcher.woken() => {}
            () = app.clock.sleep(LOOK) => {}
        }
    }
}

/// The response that a path names, with what it is made of.
#[derive(Debug)]
pub(super) struct ResponsePath(pub(super) Source);

impl FromRequestParts<Arc<Api>> for ResponsePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Api>) -> Result<Self, Problem> {
        Ok(Self(named(parts, app, Form::Response).await?))
    }
}

/// The response that a path names by the id of its chat completion.
#[derive(Debug)]
pub(super) struct CompletionPath(pub(super) Source);

impl FromRequestParts<Arc<Api>> for CompletionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Api>) -> Result<Self, Problem> {
        Ok(Self(named(parts, app, Form::Completion).await?))
    }
}

async fn named(parts: &mut Parts, app: &Arc<Api>, form: Form) -> Result<Source, Problem> {
    let path = Path::<String>::from_request_parts(parts, app).await;
    let id = path.ok().and_then(|Path(text)| form.id(&text));
    let caller = Caller::from_request_parts(parts, app).await?;
    let found = Source::find(app, &caller, id).await;
    found.map_err(|error| match (form, error.code()) {
        (Form::Completion, Code::SendNotFound) => {
            Error::new(Code::SendNotFound, "no completion has this id").into()
        }
        _ => error.into(),
    })
}
