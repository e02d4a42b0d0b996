//! Results and approvals from outside.

use mainspring_shared::id::{SessionId, SessionKey};
use mainspring_shared::session::transition::{self, Post};
use mainspring_shared::store::{PostOutcome, PostResult};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;

use crate::state::State;

/// How far above the requesting session a result may be posted.
const ANCESTORS_MAX: usize = 16;

pub(crate) fn post(state: &mut State, now: Timestamp, item: PostResult) -> PostOutcome {
    let tenant = item.key.tenant;
    let Some(call) = state.call(tenant, &item.call_id) else {
        return PostOutcome::Unknown;
    };
    let key = SessionKey {
        tenant,
        session: call.session,
    };
    let send_id = call.send_id;
    if !is_below(state, key, item.key.session) {
        return PostOutcome::Unknown;
    }
    let claims = match transition::post(call, &item.answer, now) {
        Post::AlreadySettled => return PostOutcome::AlreadySettled,
        Post::NotWaiting => return PostOutcome::NotWaiting,
        Post::ClaimLost => return PostOutcome::ClaimLost,
        Post::Claims => true,
        Post::Settles | Post::Approves | Post::Replies => false,
    };
    let Some(session) = state.sessions.get_mut(&key) else {
        return PostOutcome::Unknown;
    };
    if let Some(call) = session.calls.get_mut(&item.call_id).filter(|_| claims) {
        transition::take(call, item.answer, now);
        return PostOutcome::of_claim(key, call);
    }
    let answer = |call: &mut CallRecord| transition::take(call, item.answer, now);
    let notify = session.change_from_outside(&item.call_id, answer, now);
    PostOutcome::Accepted {
        key,
        send_id,
        enqueue: notify.ready,
        owner: notify.owner,
    }
}

/// Whether a session is this one or has it among its ancestors. A deleted session is not an
/// ancestor.
fn is_below(state: &State, key: SessionKey, above: SessionId) -> bool {
    let parent = |key: &SessionKey| {
        let cold = state.sessions.get(key)?.cold.as_ref()?;
        let session = cold.parent.as_ref()?.session;
        Some(SessionKey { session, ..*key })
    };
    let mut chain = std::iter::successors(Some(key), parent).take(1 + ANCESTORS_MAX);
    let found = chain.find(|key| key.session == above);
    let session = found.and_then(|key| state.sessions.get(&key));
    session.is_some_and(|session| session.cold.is_some())
}
