//! Calls of external tools that several programs could make, each taken on by one of them.
//!
//! A program claims calls by the names of their tools, makes them, and reports the results with its tokens. While a
//! claim lasts, nobody else gets the call. A lapsed claim of a `safe` or `keyed` call goes to the next program; a `once`
//! call is settled as unknown, since its program may have made it and died before it could say so.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::store::{self, CallAnswer, ClaimableCalls, Page, PostOutcome, PostResult};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{CallRecord, Claim};
use uuid::Uuid;

use super::results;
use crate::app::{App, each};
use crate::error::Error;

/// Maximum number of lapsed calls that are settled at once.
const LAPSED_MAX: u32 = 100;

/// How many calls are looked at at least.
const FOUND_MIN: u32 = 16;

/// A call and its claim by the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedCall {
    /// The call.
    pub call: CallRecord,
    /// The claim.
    pub claim: Claim,
}

/// What a program that makes calls asks for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Whose calls.
    pub tenant: TenantId,
    /// The names of the tools.
    pub names: Vec<String>,
    /// At most this many calls.
    pub limit: u32,
    /// How long the claims last.
    pub lease: Duration,
    /// What the caller shows with its reports: a repeat of a request that it does not know the outcome of has the same
    /// one, and gets the calls that the request got.
    pub token: Uuid,
}

/// A page of calls that a claim could get, the longest waiting first: more than it asks for, so that one that cannot be
/// read, or that others are taking, does not hide those behind it.
pub async fn find(
    app: &App,
    wanted: &Wanted,
    after: Option<(Timestamp, String)>,
) -> Result<Page<CallRecord>, Error> {
    let query = ClaimableCalls {
        tenant: wanted.tenant,
        names: wanted.names.clone(),
        token: wanted.token,
        after,
        limit: wanted.limit.max(FOUND_MIN),
    };
    Ok(app.store.claimable_calls(query).await?)
}

/// Claims those of the found calls that nobody else claimed first.
pub async fn take(
    app: &App,
    wanted: &Wanted,
    found: Vec<CallRecord>,
) -> Result<Vec<ClaimedCall>, Error> {
    let claims = found.iter().map(|call| PostResult {
        key: session_of(wanted.tenant, call),
        call_id: call.call_id.clone(),
        answer: CallAnswer::Claim {
            token: wanted.token,
            lease: wanted.lease,
        },
    });
    // What is locked is left to the next request: a claim that waits for others would lapse while it does.
    let outcomes = app.store.post_results(claims.collect()).await?;
    let claimed = found.into_iter().zip(outcomes);
    let claimed = claimed.filter_map(|(call, outcome)| match outcome {
        PostOutcome::Claimed(claim) => Some(ClaimedCall { call, claim }),
        _ => None,
    });
    Ok(claimed.collect())
}

/// Tells the store something about claims of a tenant's calls, each by call id; the outcomes in the same order. `calls` are
/// those calls, as far as the caller may know of them.
pub async fn tell(
    app: &App,
    tenant: TenantId,
    answers: Vec<(String, CallAnswer)>,
    calls: Vec<Option<CallRecord>>,
) -> Result<Vec<PostOutcome>, Error> {
    let mut outcomes = vec![PostOutcome::Unknown; answers.len()];
    let mut known = Vec::new();
    let mut places = BTreeMap::new();
    for (place, ((call_id, answer), call)) in answers.into_iter().zip(calls).enumerate() {
        let Some(call) = call else {
            continue;
        };
        places.insert(known.len(), place);
        known.push(PostResult {
            key: session_of(tenant, &call),
            call_id,
            answer,
        });
    }
    if known.is_empty() {
        return Ok(outcomes);
    }
    let posted = results::post(app, known).await?;
    if posted
        .iter()
        .any(|one| matches!(one, PostOutcome::Accepted { .. }))
    {
        // What was given back is anyone's.
        app.watch.wake_waiting(tenant);
    }
    for (at, outcome) in posted.into_iter().enumerate() {
        if let Some(place) = places.get(&at) {
            outcomes[*place] = outcome;
        }
    }
    Ok(outcomes)
}

/// Settles calls whose program may have made them and died. Returns whether there may be more.
pub(crate) async fn sweep(app: &App) -> Result<bool, store::Error> {
    let lapsed = app.store.lapsed_calls(LAPSED_MAX).await?;
    let more = lapsed.len() >= LAPSED_MAX as usize;
    if lapsed.is_empty() {
        return Ok(false);
    }
    let lapsed = lapsed.into_iter().map(|(key, call_id)| PostResult {
        key,
        call_id,
        answer: CallAnswer::Lapse,
    });
    // What is locked now is found again by the next pass, and one that cannot be read is left alone.
    let lapsed: Vec<PostResult> = lapsed.collect();
    let outcomes = each(&lapsed, |items| app.store.post_results(items)).await;
    let settled: Vec<PostOutcome> = outcomes.into_iter().filter_map(Result::ok).collect();
    results::notify(app, &settled);
    Ok(more)
}

fn session_of(tenant: TenantId, call: &CallRecord) -> SessionKey {
    SessionKey {
        tenant,
        session: call.session,
    }
}
