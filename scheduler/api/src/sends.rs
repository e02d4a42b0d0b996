//! Sends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::submit;
use mainspring_scheduler::services::agents::{OptionsAsk, Resolver};
use mainspring_scheduler::services::limits::KeySends;
use mainspring_scheduler::services::skills::pin_item;
use mainspring_scheduler::services::watch::read_and_wait;
use mainspring_scheduler::services::{blobs, cancel};
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendRecord, SendStatus, SendView};
use mainspring_shared::store::{AcceptSend, IdempotencyKey, ListSends, Target};
use mainspring_shared::time::Timestamp;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::bodies::{NewSessionBody, SendAnywhereBody, SendBody, SessionAsk};
use super::deliver::AcceptedSend;
use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::validate::Checks;
use crate::access::Caller;
use crate::access::reach::Inside;
use crate::codes::{SendNotCancellable, SendNotFound, Starts};
use crate::created::Created;
use crate::extract::{
    Json, JsonBody, Key, Limit, Nothing, Query, SendPath, SendWaitQuery, SessionPath, cursor,
    session_id, text,
};
use crate::filters::{Wanted, has_all};
use crate::openapi::form;
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(create_in_session))
        .routes(routes!(list, create))
        .routes(routes!(show))
        .routes(routes!(cancel))
}

/// Accepts a send: 202, or 200 if it ends within `wait`
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/sends",
    operation_id = "createSendInSession",
    params(SendWaitQuery, Key),
    request_body = SendBody,
    responses((status = 200, body = AcceptedSend), (status = 202, body = AcceptedSend), Starts)
)]
pub(super) async fn create_in_session(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SessionPath(key): SessionPath,
    Query(query): Query<SendWaitQuery>,
    json: Json<SendBody>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let route = format!("POST /v1/sessions/{}/sends", key.session);
    let idempotency = json.idempotency(&route)?;
    let (input, ask) = json.value;
    let mut agents = Resolver::new(&app, key.tenant, caller.allowed());
    let options = agents.options_inside(ask, key, idempotency.as_ref());
    let options = options.await?;
    let admitted = agents.admit_prices(&options, (key, None), idempotency.as_ref());
    admitted.await?;
    let target = Target::Existing(key);
    accept(
        &app,
        AcceptSend {
            id: SendId(app.entropy.ordered_id()),
            target,
            input,
            options,
            reports_to: None,
            run: None,
            idempotency,
            queued_max: app.config.queued_max,
            keeper: None,
        },
        json.whole,
        wait,
        caller.limited_sends(),
    )
    .await
}

/// Accepts a send to a session that exists or is created with it
#[utoipa::path(
    post,
    path = "/v1/sends",
    operation_id = "createSend",
    params(SendWaitQuery, Key),
    request_body = SendAnywhereBody,
    responses((status = 200, body = AcceptedSend), (status = 202, body = AcceptedSend), Starts)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SendWaitQuery>,
    json: Json<SendAnywhereBody>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let key = json.idempotency("POST /v1/sends")?;
    let mut agents = Resolver::new(&app, caller.tenant, caller.allowed());
    let mut item = json
        .value
        .item(&mut agents, &app, caller.tenant, key)
        .await?;
    pin_item(app.store.as_ref(), &mut item, "/session/agent").await?;
    accept(&app, item, json.whole, wait, caller.limited_sends()).await
}

/// A send as requested by a body, checked.
#[derive(Debug)]
pub(super) struct SendAsk {
    input: Vec<ContentPart>,
    options: OptionsAsk,
    to: SendTo,
}

#[derive(Debug)]
enum SendTo {
    /// An existing session.
    Existing(String),
    /// A session that is created with the send.
    New(Box<SessionAsk>),
}

impl SendAnywhereBody {
    pub(super) fn ask(self, checks: &mut Checks) -> SendAsk {
        checks.input(&self.input);
        let options = checks.options(self.options);
        let session = self.session.unwrap_or_default();
        let fields =
            session.agent.is_some() || session.variables.is_some() || session.metadata.is_some();
        if let (Some(one), Some(other)) = (&self.session_id, &session.session_id)
            && one != other
        {
            checks.refuse("/session/session_id", "is not the session in session_id");
        }
        let to = if let Some(text) = self.session_id.or(session.session_id) {
            if fields {
                checks.refuse("/session", "cannot be combined with session_id");
            }
            SendTo::Existing(text)
        } else {
            let fields = NewSessionBody {
                agent: session.agent,
                variables: session.variables,
                metadata: session.metadata,
                key: None,
            };
            SendTo::New(Box::new(checks.session("/session", fields)))
        };
        SendAsk {
            input: self.input.0,
            options,
            to,
        }
    }
}

impl JsonBody for SendAnywhereBody {
    type Checked = SendAsk;

    fn checked(self, checks: &mut Checks) -> SendAsk {
        if self.idempotency_key.is_some() {
            checks.refuse(
                "/idempotency_key",
                "must be sent as the Idempotency-Key header",
            );
        }
        self.ask(checks)
    }
}

impl SendAsk {
    /// Builds the send to be accepted.
    pub(super) async fn item(
        self,
        agents: &mut Resolver<'_>,
        app: &App,
        tenant: TenantId,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<AcceptSend, Error> {
        let key = idempotency.as_ref();
        let (target, options) = match self.to {
            SendTo::Existing(text) => {
                let session = SessionKey {
                    tenant,
                    session: session_id(&text)?,
                };
                let options = agents.options_in(self.options, session, key).await?;
                agents.admit_prices(&options, (session, None), key).await?;
                (Target::Existing(session), options)
            }
            SendTo::New(ask) => {
                let session = ask.new_session(agents, app, key).await?;
                let (agent, metadata) = (&session.agent, &session.metadata);
                let options = agents
                    .options_with(self.options, session.key.session, agent, metadata, key)
                    .await?;
                let of = (session.key, Some(agent));
                agents.admit_prices(&options, of, key).await?;
                (Target::New(Box::new(session)), options)
            }
        };
        Ok(AcceptSend {
            id: SendId(app.entropy.ordered_id()),
            target,
            input: self.input,
            options,
            reports_to: None,
            run: None,
            idempotency,
            queued_max: app.config.queued_max,
            keeper: None,
        })
    }
}

/// Accepts a send, and waits for it if requested. The body is held until the send is stored.
pub(super) async fn accept<H: Send>(
    app: &App,
    mut item: AcceptSend,
    body: H,
    wait: Option<Duration>,
    limited: Option<KeySends>,
) -> Result<Response, Problem> {
    blobs::prepare_send(app, &mut item, "").await?;
    let submitted = submit(app, item, body, wait, limited).await?;
    // The first response without a wait was 202, so a repeated request gets 202 too, whatever the
    // send's state is now.
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

pub(super) fn answer(send: &SendView) -> Result<Response, Problem> {
    respond::send(respond::status_of(send), send)
}

/// Which sends, newest first.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SendsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::SendId>, inline)]
    cursor: Option<SendId>,
    /// Only those of this session.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::SessionId>, inline)]
    session_id: Option<SessionId>,
    /// Only those with this status.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<SendStatus>)]
    status: Option<SendStatus>,
    /// Only those of sessions whose agent has this name.
    agent: Option<String>,
    /// `metadata[NAME]=TEXT`, or `metadata.NAME=TEXT`: only those whose own metadata say so.
    #[serde(default)]
    #[param(value_type = Option<form::Metadata>, inline, style = DeepObject, explode = true)]
    metadata: BTreeMap<String, String>,
    /// Only those whose input or answer has this text, in any case, within the first 64 KiB of each.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Wanted>, inline)]
    text: Option<Wanted>,
    /// Only those that were created at this time or later, like `2030-01-31T08:00:00Z`.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_from: Option<Timestamp>,
    /// Only those that were created before this time.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_before: Option<Timestamp>,
}

/// Sends, newest first
#[utoipa::path(
    get,
    path = "/v1/sends",
    operation_id = "listSends",
    params(SendsQuery),
    responses((status = 200, body = List<SendView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SendsQuery>,
) -> Result<Response, Problem> {
    let inside = query.inside(&app, &caller);
    let begin = query.begin();
    let read = async |before, limit| query.read(&inside, before, limit).await;
    respond::page_of_some(&app, begin, read, |send| send.id, SendView::from).await
}

impl SendsQuery {
    fn created(&self) -> Created {
        Created {
            from: self.created_from,
            before: self.created_before,
        }
    }

    pub(super) fn begin(&self) -> Begin<SendId> {
        self.created().begin(self.cursor, self.limit, SendId)
    }

    pub(super) fn is_filtered(&self) -> bool {
        let is_named = self.session_id.is_some() || self.agent.is_some() || self.text.is_some();
        let is_dated = self.status.is_some() || self.created().is_some();
        is_named || is_dated || !self.metadata.is_empty()
    }

    /// The sessions whose sends are shown.
    pub(super) fn inside<'a>(&'a self, app: &'a App, caller: &'a Caller) -> Inside<'a> {
        Inside::of(app, caller).of_agent(self.agent.as_deref())
    }

    fn fits(&self, send: &SendRecord) -> bool {
        let is_wanted = self.text.as_ref().is_none_or(|text| text.is_in(send));
        is_wanted && has_all(send.options.metadata.as_deref(), &self.metadata)
    }

    /// The sends before one, whether each is shown, and whether there are more.
    pub(super) async fn read(
        &self,
        inside: &Inside<'_>,
        before: Option<SendId>,
        limit: u32,
    ) -> Result<(Vec<(SendRecord, bool)>, bool), Error> {
        let query = ListSends {
            tenant: inside.tenant(),
            session: inside.session(self.session_id),
            status: self.status,
            before,
            limit,
        };
        let mut page = inside.app().store.list_sends(query).await?;
        let more = self
            .created()
            .keep(&mut page.data, page.more, |send| send.id.0);
        let rows = inside
            .mark(page.data, |send| Some(send.key.session))
            .await?;
        let rows = rows.into_iter().map(|(send, is_shown)| {
            let is_shown = is_shown && self.fits(&send);
            (send, is_shown)
        });
        Ok((rows.collect(), more))
    }
}

/// A send, at once or after its end
#[utoipa::path(
    get,
    path = "/v1/sends/{id}",
    operation_id = "getSend",
    params(SendWaitQuery),
    responses((status = 200, body = SendView), SendNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    SendPath(tenant, id): SendPath,
    Query(query): Query<SendWaitQuery>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let found = match wait {
        Some(wait) => read_and_wait(&app, app.watch.send(id), tenant, wait).await?,
        None => app.watch.read_send(tenant, id).await?.map(SendView::from),
    };
    let found = found.ok_or_else(Error::send_not_found)?;
    respond::json(StatusCode::OK, &found)
}

/// Cancels a send: at once, or at its worker's next safe point
#[utoipa::path(
    post,
    path = "/v1/sends/{id}/cancel",
    operation_id = "cancelSend",
    params(SendWaitQuery),
    responses((status = 200, body = SendView), (status = 202, body = SendView), SendNotCancellable, SendNotFound)
)]
pub(super) async fn cancel(
    State(app): State<Arc<Api>>,
    SendPath(tenant, id): SendPath,
    Query(query): Query<SendWaitQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    answer(&cancel::send(&app, tenant, id, wait).await?)
}
