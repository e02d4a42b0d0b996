//! Sends.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus, SendView};
use mainspring_shared::store::{AcceptSend, IdempotencyKey, ListSends, Target};

use super::deliver::AcceptedSend;
use super::extract::{
    Params, SendPath, SessionPath, Whole, json_body, no_body, parameter, parse, session_id,
};
use super::idempotency;
use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::validate::{Checks, NewSessionBody, SendAnywhereBody, SendBody};
use crate::router::Api;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::{new_session, submit};
use mainspring_scheduler::services::cancel;
use mainspring_scheduler::services::watch::watched;

/// `POST /v1/sessions/{id}/sends`
pub(super) async fn create_in_session(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let wait = params.wait(app.config.wait_max)?;
    params.finish()?;
    let json = json_body(&app, &headers, body, app.config.body_bytes_max).await?;
    let body: SendBody = parse(&json, "")?;
    let mut checks = Checks::new();
    checks.input(&body.input);
    let options = checks.options(body.options);
    checks.finish()?;
    let idempotency = if headers.contains_key("idempotency-key") {
        let route = format!("POST /v1/sessions/{}/sends", key.session);
        idempotency::of_request(&headers, &route, &json)?
    } else {
        None
    };
    let target = Target::Existing(key);
    accept(
        &app,
        AcceptSend {
            id: SendId(app.entropy.ordered_id()),
            target,
            input: body.input.0,
            options,
            reports_to: None,
            run: None,
            idempotency,
            queued_max: app.config.queued_max,
        },
        json,
        wait,
    )
    .await
}

/// `POST /v1/sends`
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let wait = params.wait(app.config.wait_max)?;
    params.finish()?;
    let json = json_body(&app, &headers, body, app.config.body_bytes_max).await?;
    let body: SendAnywhereBody = parse(&json, "")?;
    let mut checks = Checks::new();
    if body.idempotency_key.is_some() {
        checks.refuse("/idempotency_key", "is a header here: Idempotency-Key");
    }
    let key = idempotency::of_request(&headers, "POST /v1/sends", &json)?;
    let item = build(&app, checks, body, key)?;
    accept(&app, item, json, wait).await
}

/// A send as its body asks for it.
pub(super) fn build(
    app: &App,
    mut checks: Checks,
    body: SendAnywhereBody,
    idempotency: Option<IdempotencyKey>,
) -> Result<AcceptSend, Error> {
    checks.input(&body.input);
    let options = checks.options(body.options);
    let session = body.session.unwrap_or_default();
    let fields = session.agent.is_some() || session.metadata.is_some();
    if let (Some(one), Some(other)) = (&body.session_id, &session.session_id)
        && one != other
    {
        checks.refuse(
            "/session/session_id",
            "is another session than session_id names",
        );
    }
    let target = if let Some(text) = body.session_id.or(session.session_id) {
        if fields {
            checks.refuse("/session", "creates a session and excludes session_id");
        }
        checks.finish()?;
        Target::Existing(SessionKey {
            tenant: TenantId::DEFAULT,
            session: session_id(&text)?,
        })
    } else {
        let fields = NewSessionBody {
            agent: session.agent,
            metadata: session.metadata,
        };
        let (agent, metadata) = checks.session("/session", fields);
        checks.finish()?;
        Target::New(Box::new(new_session(app, agent, metadata)))
    };
    Ok(AcceptSend {
        id: SendId(app.entropy.ordered_id()),
        target,
        input: body.input.0,
        options,
        reports_to: None,
        run: None,
        idempotency,
        queued_max: app.config.queued_max,
    })
}

/// Accepts a send and waits for it if asked to; its body is held until it is stored.
async fn accept(
    app: &App,
    item: AcceptSend,
    body: Whole,
    wait: Option<Duration>,
) -> Result<Response, Problem> {
    let submitted = submit(app, item, body, wait).await?;
    // Without a wait the first answer was 202, whatever has become of the send since.
    let status = if wait.is_some() && submitted.send.status.is_final() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let path = format!("/v1/sends/{}", submitted.send.id);
    let replayed = submitted.replayed;
    let mut response = respond::created(status, &path, &AcceptedSend::from(submitted))?;
    if replayed {
        respond::mark_replayed(&mut response);
    }
    Ok(response)
}

pub(super) fn answer(send: SendRecord) -> Result<Response, Problem> {
    respond::send(respond::status_of(&send), &SendView::from(send))
}

/// `GET /v1/sends`
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit()?;
    let before = params.parsed::<SendId>("cursor", "must be a next_cursor")?;
    let session = params.take("session_id");
    let status = params.take("status").map(|text| {
        let expected = "must be queued, running, waiting, completed, failed or cancelled";
        SendStatus::parse(&text).ok_or_else(|| parameter("status", expected))
    });
    let status = status.transpose()?;
    params.finish()?;
    // A malformed id is as unknown as an unused one, and nothing belongs to either.
    let session = match session.map(|text| text.parse::<SessionId>()) {
        Some(Err(_)) => return respond::json(StatusCode::OK, &List::<SendView>::whole(Vec::new())),
        Some(Ok(session)) => Some(session),
        None => None,
    };
    let begin = Begin {
        cursor: before,
        limit,
    };
    let read = async |before: Option<SendId>, limit: u32| {
        let query = ListSends {
            tenant: TenantId::DEFAULT,
            session,
            status,
            before,
            limit,
        };
        let page = app.store.list_sends(query).await?;
        Ok((page.data, page.more))
    };
    respond::page(&app, begin, read, |send| send.id, SendView::from).await
}

/// `GET /v1/sends/{id}`
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    SendPath(id): SendPath,
    mut params: Params,
) -> Result<Response, Problem> {
    let wait = params.wait(app.config.wait_max)?;
    params.finish()?;
    let tenant = TenantId::DEFAULT;
    let found = match wait {
        Some(wait) => watched(&app, app.watch.send(id), tenant, wait).await?,
        None => app.watch.read_send(tenant, id).await?,
    };
    let found = found.ok_or_else(Error::send_not_found)?;
    respond::json(StatusCode::OK, &SendView::from(found))
}

/// `POST /v1/sends/{id}/cancel`
pub(super) async fn cancel(
    State(app): State<Arc<Api>>,
    SendPath(id): SendPath,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let wait = params.wait(app.config.wait_max)?;
    params.finish()?;
    no_body(&app, &headers, body).await?;
    answer(cancel::send(&app, id, wait).await?)
}
