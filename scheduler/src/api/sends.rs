//! Sends.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use mainspring_shared::bus::StepNotice;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus, SendView};
use mainspring_shared::store::{
    self, AcceptOutcome, AcceptSend, Accepted, CancelOutcome, IdempotencyKey, ListSends, Target,
    cancel_below,
};
use mainspring_shared::usage::Usage;

use super::extract::{
    Params, SendPath, SessionPath, Whole, json_body, no_body, parameter, parse, session_id,
};
use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::sessions::new_session;
use super::validate::{Checks, NewSessionBody, SendAnywhereBody, SendBody};
use super::{deliver, idempotency};
use crate::app::{App, each};
use crate::error::Error;
use crate::services::accept::{again, publish_steps, signal, tell_ends};
use crate::services::watch::{Watching, wait_for};

/// `POST /v1/sessions/{id}/sends`
pub(super) async fn create_in_session(
    State(app): State<Arc<App>>,
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
    State(app): State<Arc<App>>,
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
        let session = new_session(app, &mut checks, "/session", fields);
        checks.finish()?;
        Target::New(Box::new(session))
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
    let body = match deliver::to_busy(app, &item, body, wait).await? {
        Ok(response) => return Ok(response),
        Err(body) => body,
    };
    let (key, id) = (item.target.key(), item.id);
    let warnings = match &item.target {
        Target::New(session) => {
            let known =
                app.tools
                    .lacks_lately(app.store.as_ref(), app.clock.as_ref(), &session.agent);
            known.await
        }
        Target::Existing(_) => Vec::new(),
    };
    // Whoever waits is in place before the send exists, so that its end cannot be missed.
    let waiting = wait.map(|wait| (app.watch.send(id), wait));
    let outcome = app.accept.one(item).await?;
    drop(body);
    match outcome {
        AcceptOutcome::Accepted(accepted) => {
            let fresh = SendView {
                warnings,
                ..accepted_view(key, id, &accepted)
            };
            let Some((watching, wait)) = waiting else {
                return respond::send(StatusCode::ACCEPTED, &fresh);
            };
            // The send stands whatever happens to the reads: without an answer it is shown as it
            // was accepted.
            match wait_for(app, &watching, key.tenant, None, wait).await {
                Ok(Some(send)) => {
                    let status = respond::status_of(&send);
                    let warnings = fresh.warnings;
                    let view = SendView {
                        warnings,
                        ..SendView::from(send)
                    };
                    respond::send(status, &view)
                }
                Ok(None) | Err(_) => respond::send(StatusCode::ACCEPTED, &fresh),
            }
        }
        AcceptOutcome::Replayed(first) => {
            let send = match wait {
                Some(wait) => watched(app, app.watch.send(first), key.tenant, wait).await?,
                None => app.read_send(key.tenant, first).await?,
            };
            let send = send.ok_or_else(Error::send_not_found)?;
            // Without a wait the first answer was 202, whatever has become of the send since.
            let status = if wait.is_some() {
                respond::status_of(&send)
            } else {
                StatusCode::ACCEPTED
            };
            let mut response = respond::send(status, &SendView::from(send))?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
        AcceptOutcome::Mismatch => Err(Error::mismatch().into()),
        AcceptOutcome::Refused(reason) => Err(Error::from(reason).into()),
        AcceptOutcome::Locked => Err(Error::locked().into()),
    }
}

fn answer(send: SendRecord) -> Result<Response, Problem> {
    respond::send(respond::status_of(&send), &SendView::from(send))
}

/// A send that was accepted this moment, as a read would show it.
pub(super) fn accepted_view(key: SessionKey, id: SendId, accepted: &Accepted) -> SendView {
    SendView {
        id,
        session_id: key.session,
        status: SendStatus::Queued,
        stop_reason: None,
        output_text: None,
        output: None,
        error: None,
        usage: Usage::default(),
        rounds: 0,
        attempts: 0,
        waiting_on: None,
        position: accepted.position,
        created_at: accepted.created_at,
        started_at: None,
        finished_at: None,
        warnings: Vec::new(),
    }
}

/// A send that exists already, once it is settled or the wait is over.
pub(super) async fn watched(
    app: &App,
    watching: Watching<SendId>,
    tenant: TenantId,
    wait: Duration,
) -> Result<Option<SendRecord>, Error> {
    match app.read_send(tenant, watching.key()).await? {
        None => Ok(None),
        known => wait_for(app, &watching, tenant, known, wait).await,
    }
}

/// `GET /v1/sends`
pub(super) async fn list(
    State(app): State<Arc<App>>,
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
    State(app): State<Arc<App>>,
    SendPath(id): SendPath,
    mut params: Params,
) -> Result<Response, Problem> {
    let wait = params.wait(app.config.wait_max)?;
    params.finish()?;
    let tenant = TenantId::DEFAULT;
    let found = match wait {
        Some(wait) => watched(&app, app.watch.send(id), tenant, wait).await?,
        None => app.read_send(tenant, id).await?,
    };
    let found = found.ok_or_else(Error::send_not_found)?;
    respond::json(StatusCode::OK, &SendView::from(found))
}

/// `POST /v1/sends/{id}/cancel`
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    SendPath(id): SendPath,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let wait = params.wait(app.config.wait_max)?;
    params.finish()?;
    no_body(&app, &headers, body).await?;
    cancel_one(&app, id, wait).await
}

/// Cancels a send: 200 when it has ended, 202 when its worker was told.
pub(super) async fn cancel_one(
    app: &App,
    id: SendId,
    wait: Option<Duration>,
) -> Result<Response, Problem> {
    let tenant = TenantId::DEFAULT;
    let watching = app.watch.send(id);
    let boot = app.boot_id()?;
    let step = |items| each(items, |items| app.store.cancel_sends(None, boot, items));
    let is_locked = |outcome: &_| matches!(outcome, Ok(CancelOutcome::Locked));
    let asked = vec![(tenant, id)];
    let outcomes = step(asked.clone()).await;
    let mut outcomes = again(app, asked, outcomes, is_locked, step).await;
    match outcomes.pop().transpose()? {
        Some(CancelOutcome::Cancelled { send, step, ring }) => {
            app.ringer.ring(ring);
            let notice = StepNotice {
                key: send.key,
                send: id,
                n: step,
                settled: true,
            };
            publish_steps(app.bus.as_ref(), &[notice]);
            end_below(app, send.key, id).await?;
            answer(*send)
        }
        Some(CancelOutcome::Signalled { send, .. }) => {
            signal(app, send.key, 0);
            let Some(wait) = wait else {
                return answer(*send);
            };
            let known = Some(*send);
            let ended = wait_for(app, &watching, tenant, known, wait).await?;
            answer(ended.ok_or_else(Error::send_not_found)?)
        }
        Some(CancelOutcome::AlreadyFinal(send)) if send.status == SendStatus::Cancelled => {
            // Whoever cancelled it may have been stopped here.
            end_below(app, send.key, id).await?;
            answer(*send)
        }
        Some(CancelOutcome::AlreadyFinal(send)) => Err(Error::new(
            Code::SendNotCancellable,
            format!("the send is {} already", send.status.as_str()),
        )
        .into()),
        Some(CancelOutcome::NotFound) => Err(Error::send_not_found().into()),
        Some(CancelOutcome::Locked) => Err(Error::locked().into()),
        None => Err(Error::internal().into()),
    }
}

/// Ends what works for a send that ended without a worker. Sessions that someone else has locked are
/// waited for, for a while.
pub(super) async fn end_below(app: &App, key: SessionKey, send: SendId) -> Result<(), Error> {
    let boot = app.boot_id()?;
    let step = |asked| ask_below(app, boot, asked);
    let asked = vec![(key, send)];
    let ended = step(asked.clone()).await;
    let is_locked = |ended: &_| matches!(ended, Ok(false));
    match again(app, asked, ended, is_locked, step).await.pop() {
        Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(Error::locked()),
        Some(Err(error)) => Err(Error::from(&error)),
        None => Err(Error::internal()),
    }
}

async fn ask_below(
    app: &App,
    boot: BootId,
    asked: Vec<(SessionKey, SendId)>,
) -> Vec<store::Result<bool>> {
    let mut ended = Vec::with_capacity(asked.len());
    for (key, send) in asked {
        let below = cancel_below(app.store.as_ref(), boot, key, send).await;
        ended.push(below.map(|below| tell_ends(app, below)));
    }
    ended
}
