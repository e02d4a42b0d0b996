//! Tokens with which pages of browsers use one session.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::id::{SessionId, SessionKey};
use mainspring_shared::tenant::{Binding, Right, Scope, Scopes};
use mainspring_shared::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Caller, Grant};
use crate::codes::{SecretNoSeal, SessionNotFound};
use crate::extract::{Json, JsonBody, NoQuery, Query};
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;
use crate::validate::Checks;

/// How long a token is accepted unless the request says otherwise.
const TTL_DEFAULT: Duration = Duration::from_hours(1);

const TTL_MAX: Duration = Duration::from_hours(24);

/// What a page may be allowed, with what its maker must be.
const SCOPES: [(Scope, Right); 3] = [
    (Scope::Read, Right::Read),
    (Scope::Use, Right::Use),
    (Scope::Answer, Right::Answer),
];

/// A token to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTokenBody {
    /// The only session that it reaches.
    #[schema(value_type = String)]
    session_id: Option<String>,
    /// What it allows, of `read`, `use` and `answer`, and no more than the key that makes it; `read` if absent.
    #[schema(value_type = Option<Vec<Scope>>)]
    scopes: Option<Vec<Scope>>,
    /// How long it is accepted; `1h` if absent, at most `24h`.
    #[schema(value_type = Option<String>)]
    ttl: Option<Span>,
}

/// The same, checked.
#[derive(Debug)]
pub(super) struct Asked {
    session: String,
    scopes: Scopes,
    ttl: Duration,
}

impl JsonBody for NewTokenBody {
    type Checked = Asked;

    fn checked(self, checks: &mut Checks) -> Asked {
        if self.session_id.is_none() {
            checks.refuse("/session_id", "is required");
        }
        let scopes = self.scopes.unwrap_or_else(|| vec![Scope::Read]);
        if scopes.is_empty() {
            checks.refuse("/scopes", "must have at least one");
        }
        for (n, scope) in scopes.iter().enumerate() {
            if !SCOPES.iter().any(|(known, _)| known == scope) {
                checks.refuse(&format!("/scopes/{n}"), "must be read, use or answer");
            }
        }
        let ttl = self.ttl.map_or(TTL_DEFAULT, |span| span.0);
        if ttl.is_zero() || ttl > TTL_MAX {
            checks.refuse("/ttl", "must be more than 0 and at most 24h");
        }
        Asked {
            session: self.session_id.unwrap_or_default(),
            scopes: Scopes(scopes.into_iter().collect()),
            ttl,
        }
    }
}

/// A token for one session.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = SessionToken)]
pub(super) struct TokenView {
    /// What to send as `Authorization: Bearer …`. It is stored nowhere.
    token: String,
    /// The only session that it reaches.
    #[schema(value_type = String)]
    session_id: SessionId,
    /// What it allows.
    #[schema(value_type = Vec<Scope>)]
    scopes: Scopes,
    /// From when on it is refused.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(create))
}

/// Makes a token with which a page of a browser uses one session for a while
///
/// It is void as soon as the key that it was made with is revoked, and is not accepted for longer than a token that it was
/// made with. A repeated request makes another one.
#[utoipa::path(
    post,
    path = "/v1/tokens",
    operation_id = "createToken",
    request_body = NewTokenBody,
    responses((status = 201, body = TokenView), SecretNoSeal, SessionNotFound)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<NewTokenBody>,
) -> Result<Response, Problem> {
    let Asked {
        session,
        scopes,
        ttl,
    } = json.value;
    for (scope, right) in SCOPES {
        if scopes.0.contains(&scope) {
            caller.require(right)?;
        }
    }
    let tenant = caller.tenant;
    let session = session.parse().map_err(|_| Error::session_not_found())?;
    let found = app
        .store
        .get_session(SessionKey { tenant, session })
        .await?;
    let is_inside = |found| caller.binding().is_none_or(|binding| binding.holds(found));
    if !found.as_ref().is_some_and(is_inside) {
        return Err(Error::session_not_found().into());
    }
    let now = app.database_time().await;
    // A token of an issuer has no key with which others would end: they end with it, and so with a cookie of the console.
    let left = caller.until().map(|until| until.since(app.clock.now()));
    let grant = Grant {
        tenant,
        key: caller.key_id(),
        by: caller.name(),
        scopes,
        binding: Binding {
            sessions: BTreeSet::from([session]),
            ..caller.binding().cloned().unwrap_or_default()
        },
        expires_at: now.after(left.map_or(ttl, |left| left.min(ttl))),
    };
    let view = TokenView {
        token: grant.seal(&app.outside.webhooks, app.entropy.as_ref())?,
        session_id: session,
        scopes: grant.scopes,
        expires_at: grant.expires_at,
    };
    respond::json(StatusCode::CREATED, &view)
}
