//! Waiting calls of a whole tenant: the list of them, and claims of programs that make them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::claims::{self, ClaimedCall, Wanted};
use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::message::Arguments;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{CallAnswer, ListWaitingCalls, PostOutcome};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::tool::{CallRecord, Repeat};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::idempotency;
use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::validate::Checks;
use super::waiting::WaitingCall;
use crate::access::Caller;
use crate::access::reach::Inside;
use crate::extract::{
    FromText, Json, JsonBody, Key, Limit, NoQuery, Query, WaitQuery, cursor, text,
};
use crate::router::Api;

/// Maximum number of names, and of calls, of a request.
const NAMES_MAX: usize = 64;
const CALLS_MAX: u32 = 100;

/// How often a request looks again while others take what it found.
const TRIES: u32 = 8;

/// How many pages of calls are looked through for a key that is bound to a part of them.
const PAGES_MAX: u32 = 100;

/// How long claims last when a request does not say so, and at most.
const LEASE: Duration = Duration::from_mins(1);
const LEASE_MAX: Duration = Duration::from_hours(1);
const LEASE_MIN: Duration = Duration::from_secs(1);

/// Calls that a program takes on.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimBody {
    /// The tools that it has, 1 to 64.
    names: Vec<String>,
    /// At most this many calls, 1 to 100; 1 when absent.
    limit: Option<u32>,
    /// How long nobody else gets them, from 1 s to 1 h; 60 s when absent.
    #[schema(value_type = Option<String>)]
    lease: Option<Span>,
}

/// Claims that go on.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewBody {
    /// 1 to 100.
    claims: Vec<HeldClaim>,
    /// How long nobody else gets the calls, from now, from 1 s to 1 h; 60 s when absent.
    #[schema(value_type = Option<String>)]
    lease: Option<Span>,
}

/// Claims that are given up.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseBody {
    /// 1 to 100.
    claims: Vec<HeldClaim>,
}

/// A claim of the caller.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldClaim {
    /// The call.
    call_id: String,
    /// What it was claimed with.
    #[schema(value_type = String, format = "uuid")]
    claim: Uuid,
}

/// Checks of a request about claims.
fn check_lease(checks: &mut Checks, lease: Option<Span>) -> Duration {
    let lease = lease.map_or(LEASE, |span| span.0);
    if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
        checks.refuse("/lease", "must be from 1s to 1h");
    }
    lease
}

fn check_claims(checks: &mut Checks, claims: &[HeldClaim]) {
    if claims.is_empty() || claims.len() > CALLS_MAX as usize {
        checks.refuse("/claims", &format!("must have 1 to {CALLS_MAX} items"));
    }
}

impl JsonBody for ClaimBody {
    type Checked = (Vec<String>, u32, Duration);

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        if self.names.is_empty() || self.names.len() > NAMES_MAX {
            checks.refuse("/names", &format!("must have 1 to {NAMES_MAX} items"));
        }
        for (place, name) in self.names.iter().enumerate() {
            if name.contains('\0') {
                checks.refuse(&format!("/names/{place}"), "must not contain U+0000");
            }
        }
        let limit = self.limit.unwrap_or(1);
        if limit == 0 || limit > CALLS_MAX {
            checks.refuse("/limit", &format!("must be from 1 to {CALLS_MAX}"));
        }
        let mut names = self.names;
        names.sort();
        names.dedup();
        (names, limit, check_lease(checks, self.lease))
    }
}

impl JsonBody for RenewBody {
    type Checked = (Vec<HeldClaim>, Duration);

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        check_claims(checks, &self.claims);
        let lease = check_lease(checks, self.lease);
        (self.claims, lease)
    }
}

impl JsonBody for ReleaseBody {
    type Checked = Vec<HeldClaim>;

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        check_claims(checks, &self.claims);
        self.claims
    }
}

/// The calls that the caller has now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ClaimedCalls {
    /// The longest waiting first; none if nothing waits.
    calls: Vec<CallToMake>,
}

/// A call that the caller is to make, whose result it reports with `claim`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct CallToMake {
    /// The id with which its result is posted.
    call_id: String,
    /// The session to whose `tool-results` it is posted.
    #[schema(value_type = String)]
    session_id: SessionId,
    /// The send that asks.
    #[schema(value_type = String)]
    send_id: SendId,
    /// The tool's name.
    name: String,
    /// The arguments.
    #[schema(value_type = Object)]
    arguments: Arguments,
    /// Whether the call may be made again after the caller died.
    repeat: Repeat,
    /// What the result is reported with.
    #[schema(value_type = String, format = "uuid")]
    claim: Uuid,
    /// Until when nobody else gets it.
    #[schema(value_type = String, format = DateTime)]
    claimed_until: Timestamp,
    /// Which claim of the call this is, from 1: from 2 on, a program that had it may have made it.
    attempt: i32,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    requested_at: Timestamp,
    /// When a result is too late.
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Timestamp>,
}

impl From<ClaimedCall> for CallToMake {
    fn from(claimed: ClaimedCall) -> Self {
        let ClaimedCall { call, claim } = claimed;
        Self {
            call_id: call.call_id,
            session_id: call.session,
            send_id: call.send_id,
            name: call.name,
            arguments: call.arguments,
            repeat: call.repeat,
            claim: claim.token,
            claimed_until: claim.until,
            attempt: claim.n,
            requested_at: call.requested_at,
            deadline_at: call.deadline_at,
        }
    }
}

/// What became of claims, in order.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ToldClaims {
    claims: Vec<ToldClaim>,
}

/// What became of one.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ToldClaim {
    /// The call.
    call_id: String,
    #[schema(inline)]
    status: Told,
    /// Until when nobody else gets the call, if it is `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, required = false)]
    claimed_until: Option<Timestamp>,
}

/// What became of a claim. `lost`: someone else has the call, or nobody. `locked`: another transaction has held its session
/// for long; try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum Told {
    Held,
    Released,
    Lost,
    AlreadySettled,
    NotWaiting,
    Unknown,
    Locked,
}

impl ToldClaim {
    fn of(call_id: String, outcome: &PostOutcome) -> Self {
        let (status, claimed_until) = match outcome {
            PostOutcome::Claimed(claim) => (Told::Held, Some(claim.until)),
            PostOutcome::Accepted { .. } => (Told::Released, None),
            PostOutcome::ClaimLost => (Told::Lost, None),
            PostOutcome::AlreadySettled => (Told::AlreadySettled, None),
            PostOutcome::NotWaiting => (Told::NotWaiting, None),
            PostOutcome::Unknown => (Told::Unknown, None),
            PostOutcome::Locked => (Told::Locked, None),
        };
        Self {
            call_id,
            status,
            claimed_until,
        }
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(claim))
        .routes(routes!(renew))
        .routes(routes!(release))
}

/// A place in the list of waiting calls.
#[derive(Debug, Clone)]
struct Place(Timestamp, String);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.0, self.1)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, id) = text.split_once('.').ok_or(())?;
        let at = at.parse().map_err(|_| ())?;
        if id.contains('\0') {
            return Err(());
        }
        Ok(Self(Timestamp(at), id.to_owned()))
    }
}

/// Who can answer a call from outside.
#[derive(Debug, Clone, Copy, utoipa::ToSchema)]
#[schema(rename_all = "lowercase")]
pub(crate) enum AskedOf {
    /// A person.
    Human,
    /// A program that has the tool.
    Tool,
}

impl FromText for AskedOf {
    const EXPECTED: &'static str = "must be human or tool";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "human" => Some(Self::Human),
            "tool" => Some(Self::Tool),
            _ => None,
        }
    }
}

impl From<AskedOf> for WaitingOn {
    fn from(asked: AskedOf) -> Self {
        match asked {
            AskedOf::Human => Self::Human,
            AskedOf::Tool => Self::Tool,
        }
    }
}

/// Which waiting calls to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<String>)]
    cursor: Option<Place>,
    /// Only those that wait for a `human` or for a `tool` of a program.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<AskedOf>, inline)]
    waiting_on: Option<AskedOf>,
    /// Only calls of the tool with this name.
    name: Option<String>,
    /// Only calls of sessions whose agent has this name.
    agent: Option<String>,
}

/// Calls of all sessions that wait for a person or a client, the longest waiting first
#[utoipa::path(
    get,
    path = "/v1/calls",
    operation_id = "listCalls",
    params(CallsQuery),
    responses((status = 200, body = List<WaitingCall>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<CallsQuery>,
) -> Result<Response, Problem> {
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let inside = Inside::of(&app, &caller).of_agent(query.agent.as_deref());
    let read = async |after: Option<Place>, limit: u32| {
        let wanted = ListWaitingCalls {
            tenant: caller.tenant,
            on: query.waiting_on.map(AskedOf::into),
            after: after.map(|Place(at, id)| (at, id)),
            limit,
        };
        let page = app.store.list_waiting_calls(wanted).await?;
        let marked = inside.mark(page.data, |call: &CallRecord| Some(call.session));
        let rows = marked.await?.into_iter().map(|(call, is_shown)| {
            let is_meant = query.name.as_ref().is_none_or(|name| *name == call.name);
            (call, is_shown && is_meant)
        });
        Ok((rows.collect(), page.more))
    };
    let place = |call: &CallRecord| Place(call.requested_at, call.call_id.clone());
    respond::page_of_some(&app, begin, read, place, WaitingCall::from).await
}

/// Takes on calls of external tools: nobody else gets them while the claims last
///
/// Several programs may have the same tools; each call goes to one of them. Report a result with its `claim` to the
/// session's `tool-results`. A repeat with the same `Idempotency-Key` gets the calls that the first request got, if its
/// response was lost: so the key names one program's one request, and no other may have it. A claim that lapses gives a `safe` or `keyed` call to the next program; a `once` call is
/// settled with `tool.unknown_outcome`, since it may have been made.
#[utoipa::path(
    post,
    path = "/v1/calls:claim",
    operation_id = "claimCalls",
    params(WaitQuery, Key),
    request_body = ClaimBody,
    responses((status = 200, body = ClaimedCalls))
)]
pub(super) async fn claim(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<WaitQuery>,
    headers: HeaderMap,
    Json {
        value: (names, limit, lease),
        ..
    }: Json<ClaimBody>,
) -> Result<Response, Problem> {
    let wanted = Wanted {
        tenant: caller.tenant,
        names,
        limit,
        lease,
        token: match idempotency::header(&headers)? {
            Some(text) => token_of(&caller, text),
            None => app.entropy.random_id(),
        },
    };
    let within = query.within(app.config.wait_max).unwrap_or_default();
    let inside = Inside::of(&app, &caller);
    let calls = claim_within(&app, &wanted, &inside, within).await?;
    let calls = calls.into_iter().map(CallToMake::from).collect();
    respond::json(StatusCode::OK, &ClaimedCalls { calls })
}

/// The token of a request with this key: another one for each key, and for keys of callers that reach other sessions.
fn token_of(caller: &Caller, key: &str) -> Uuid {
    let key = idempotency::key(caller, "POST /v1/calls:claim", key, [0; 32]);
    idempotency::digest(&key)
}

/// Claims until there is something, the time is over or the process stops.
async fn claim_within(
    app: &App,
    wanted: &Wanted,
    inside: &Inside<'_>,
    within: Duration,
) -> Result<Vec<ClaimedCall>, Error> {
    let watcher = app.watch.waiting(wanted.tenant);
    let mut over = app.clock.sleep(within);
    let mut stopping = Box::pin(app.process.lifecycle.stopping());
    loop {
        let claimed = claim_now(app, wanted, inside).await?;
        if !claimed.is_empty() || within.is_zero() {
            return Ok(claimed);
        }
        tokio::select! {
            biased;
            () = &mut stopping => return Ok(claimed),
            () = &mut over => return Ok(claimed),
            () = watcher.woken() => {}
        }
    }
}

/// Claims some of the calls that wait, if there are any that the caller may have. Others may take what is found first:
/// then it looks again, and begins at another place than they do.
async fn claim_now(
    app: &App,
    wanted: &Wanted,
    inside: &Inside<'_>,
) -> Result<Vec<ClaimedCall>, Error> {
    for attempt in 0..TRIES {
        let mut found = found(app, wanted, inside).await?;
        let is_held = |call: &CallRecord| call.claimed_with(wanted.token).is_some();
        if attempt > 0 && !found.iter().any(is_held) {
            let places = found.len();
            found.rotate_left(place_in(app.entropy.fraction(), places));
        }
        found.truncate(wanted.limit as usize);
        if found.is_empty() {
            break;
        }
        let claimed = claims::take(app, wanted, found).await?;
        if !claimed.is_empty() {
            return Ok(claimed);
        }
    }
    Ok(Vec::new())
}

/// The calls that a claim of the caller could get, the longest waiting first. Those outside its key's binding may have
/// waited for longer, so it looks behind them, up to a number.
async fn found(app: &App, wanted: &Wanted, inside: &Inside<'_>) -> Result<Vec<CallRecord>, Error> {
    let mut found = Vec::new();
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let page = claims::find(app, wanted, after.take()).await?;
        let last = page.data.last();
        after = last.map(|last| (last.requested_at, last.call_id.clone()));
        let marked = inside.mark(page.data, |call| Some(call.session)).await?;
        let mine = marked.into_iter().filter(|(_, is_mine)| *is_mine);
        found.extend(mine.map(|(call, _)| call));
        if found.len() >= wanted.limit as usize || !page.more || after.is_none() {
            break;
        }
    }
    Ok(found)
}

/// The place among so many that a fraction points to.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a fraction of a small number"
)]
fn place_in(fraction: f64, places: usize) -> usize {
    ((fraction * places as f64) as usize).min(places.saturating_sub(1))
}

/// Keeps claims for longer
#[utoipa::path(
    post,
    path = "/v1/calls:renew",
    operation_id = "renewClaims",
    request_body = RenewBody,
    responses((status = 200, body = ToldClaims))
)]
pub(super) async fn renew(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    Json {
        value: (held, lease),
        ..
    }: Json<RenewBody>,
) -> Result<Response, Problem> {
    let renewal = |token| CallAnswer::Renew { token, lease };
    told(&app, &caller, held, renewal).await
}

/// Gives claims back: the calls were not made and go to the next program
#[utoipa::path(
    post,
    path = "/v1/calls:release",
    operation_id = "releaseClaims",
    request_body = ReleaseBody,
    responses((status = 200, body = ToldClaims))
)]
pub(super) async fn release(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    Json { value: held, .. }: Json<ReleaseBody>,
) -> Result<Response, Problem> {
    told(&app, &caller, held, |token| CallAnswer::GiveBack { token }).await
}

/// Tells the store the same about each claim. Calls outside the key's binding do not exist for it.
async fn told(
    app: &App,
    caller: &Caller,
    held: Vec<HeldClaim>,
    answer: impl Fn(Uuid) -> CallAnswer,
) -> Result<Response, Problem> {
    let tenant = caller.tenant;
    let ids = held.iter().map(|held| (tenant, held.call_id.clone()));
    let calls = app.store.get_calls(ids.collect()).await?;
    let inside = Inside::of(app, caller);
    let session = |call: &Option<CallRecord>| call.as_ref().map(|call| call.session);
    let marked = inside.mark(calls, session).await?.into_iter();
    let calls = marked.map(|(call, is_inside)| call.filter(|_| is_inside));
    let answers = held.iter();
    let answers = answers.map(|held| (held.call_id.clone(), answer(held.claim)));
    let outcomes = claims::tell(app, tenant, answers.collect(), calls.collect()).await?;
    let told = held.into_iter().zip(&outcomes);
    let claims = told.map(|(held, outcome)| ToldClaim::of(held.call_id, outcome));
    let claims = claims.collect();
    respond::json(StatusCode::OK, &ToldClaims { claims })
}
