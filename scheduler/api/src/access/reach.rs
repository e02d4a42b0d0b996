//! What a key that is bound to a part of its tenant reaches: a function of the method and the route of a
//! request, so that an endpoint that nobody thought of is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::extract::RawPathParams;
use axum::http::Method;
use futures::{StreamExt, TryStreamExt};
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::{RunKey, SessionId, SessionKey, TenantId};
use mainspring_shared::store;
use mainspring_shared::tenant::{Binding, Outside};
use mainspring_shared::timer::{TimerRecord, TimerTarget};

use super::Caller;

/// How a request is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It neither shows nor makes anything that a key could be bound to.
    Free,
    /// Its path names a session.
    Session,
    /// Its path names a send, which is where its session is.
    Send,
    /// Its path names a timer, which is where its session is; one that starts runs is nowhere.
    Timer,
    /// Its path names a run, which is where its session is; one without a session is nowhere.
    Run,
    /// Its path names a published agent.
    Agent,
    /// Its path names an entry of the memory.
    Memory,
    /// Its handler judges what its body or its query names, and what it lists.
    Handler,
    /// It concerns the tenant as a whole.
    Closed,
}

/// Sessions that a list reads at once to judge its rows.
const READ_AT_ONCE: usize = 16;

const FREE: [&str; 6] = [
    "/v1/info",
    "/v1/tools",
    "/v1/workflows/schema",
    "/v1/workflows:validate",
    // Who knows the hash of a blob has seen it, or may send it.
    "/v1/blobs",
    "/v1/blobs/{sha256}",
];

const HANDLERS: [&str; 10] = [
    "/v1/sessions",
    "/v1/sessions:import",
    "/v1/sends",
    "/v1/sends:batch",
    "/v1/timers",
    "/v1/timers:batch",
    "/v1/agents",
    "/v1/agents:diff",
    "/v1/memories",
    "/v1/memories/erasures",
];

/// A pause of an agent holds up everyone who uses it.
const PAUSES: [&str; 2] = ["/v1/agents/{name}/pause", "/v1/agents/{name}/resume"];

impl Reach {
    /// That of a request to a route.
    pub(crate) fn of(method: &Method, route: &str) -> Self {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let item = |prefix: &str| {
            let rest = route.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if FREE.contains(&route) {
            Self::Free
        } else if HANDLERS.contains(&route) || (reads && route == "/v1/runs") {
            Self::Handler
        } else if item("/v1/sessions/{id}") {
            Self::Session
        } else if item("/v1/sends/{id}") {
            Self::Send
        } else if item("/v1/timers/{id}") {
            Self::Timer
        } else if item("/v1/runs/{id}") && (reads || route == "/v1/runs/{id}/cancel") {
            // What changes the nodes of a run may give them agents.
            Self::Run
        } else if item("/v1/agents/{name}") && !PAUSES.contains(&route) {
            Self::Agent
        } else if item("/v1/memories/{id}") {
            Self::Memory
        } else {
            Self::Closed
        }
    }
}

/// Refuses a request whose path names something outside of what its key is bound to, as if it did not
/// exist.
pub(crate) async fn enter(
    app: &App,
    (tenant, binding): (TenantId, &Binding),
    method: &Method,
    route: &str,
    path: Option<&RawPathParams>,
) -> Result<(), Error> {
    // Nothing is at a path without a route.
    if route.is_empty() {
        return Ok(());
    }
    if !binding.extra.is_empty() {
        return Err(Error::outside(&Outside::Unknown));
    }
    let first = path.and_then(|path| path.iter().next());
    let first = first.map_or("", |(_, value)| value);
    match Reach::of(method, route) {
        Reach::Free | Reach::Handler => Ok(()),
        Reach::Closed => Err(closed()),
        Reach::Session => {
            let session = first.parse().ok();
            let found = has_session(app, binding, tenant, session).await?;
            found.then_some(()).ok_or_else(Error::session_not_found)
        }
        Reach::Send => {
            let found = match first.parse() {
                Ok(id) => app.watch.read_send(tenant, id).await?,
                Err(_) => None,
            };
            let session = found.map(|send| send.key.session);
            let found = has_session(app, binding, tenant, session).await?;
            found.then_some(()).ok_or_else(Error::send_not_found)
        }
        Reach::Timer => {
            let found = match first.parse() {
                Ok(id) => app.store.get_timers(vec![(tenant, id)]).await?,
                Err(_) => Vec::new(),
            };
            let session = found.into_iter().flatten().next();
            let session = session.as_ref().and_then(session_of);
            let found = has_session(app, binding, tenant, session).await?;
            found.then_some(()).ok_or_else(crate::timers::not_found)
        }
        Reach::Run => {
            let found = match first.parse() {
                Ok(run) => app.store.get_runs(vec![RunKey { tenant, run }]).await?,
                Err(_) => Vec::new(),
            };
            let session = found.into_iter().flatten().next();
            let session = session.and_then(|run| run.session);
            let found = has_session(app, binding, tenant, session).await?;
            found.then_some(()).ok_or_else(Error::run_not_found)
        }
        Reach::Agent => {
            let name = first.parse();
            let found = name.is_ok_and(|name| binding.has_agent(&name));
            found.then_some(()).ok_or_else(crate::agents::not_found)
        }
        Reach::Memory => {
            let found = match first.parse() {
                Ok(id) => app.store.get_memory(tenant, id).await?,
                Err(_) => None,
            };
            let found = found.is_some_and(|entry| binding.covers(&entry.namespace));
            found.then_some(()).ok_or_else(crate::memories::not_found)
        }
    }
}

/// What a request gets that concerns the tenant as a whole.
pub(crate) fn closed() -> Error {
    let detail = "a bound API key cannot perform tenant-wide operations";
    Error::new(Code::AuthBinding, detail)
}

/// The session that a timer sends to.
pub(crate) fn session_of(timer: &TimerRecord) -> Option<SessionId> {
    match &timer.target {
        TimerTarget::Send { session, .. } => Some(*session),
        TimerTarget::Run { .. } => None,
    }
}

async fn has_session(
    app: &App,
    binding: &Binding,
    tenant: TenantId,
    session: Option<SessionId>,
) -> store::Result<bool> {
    let Some(session) = session else {
        return Ok(false);
    };
    let found = app
        .store
        .get_session(SessionKey { tenant, session })
        .await?;
    Ok(found.is_some_and(|found| binding.holds(&found)))
}

/// What of a list lies inside: the rows whose sessions do. Each session is read once, whatever pieces a page is read in.
pub(crate) struct Inside<'a> {
    app: &'a App,
    caller: &'a Caller,
    judged: Mutex<BTreeMap<SessionId, bool>>,
}

impl<'a> Inside<'a> {
    pub(crate) fn of(app: &'a App, caller: &'a Caller) -> Self {
        Self {
            app,
            caller,
            judged: Mutex::default(),
        }
    }

    /// Rows, and whether each is shown. What has no session lies outside of every binding.
    pub(crate) async fn mark<T>(
        &self,
        rows: Vec<T>,
        session: impl Fn(&T) -> Option<SessionId>,
    ) -> Result<Vec<(T, bool)>, Error> {
        let Some(binding) = self.caller.binding() else {
            return Ok(rows.into_iter().map(|row| (row, true)).collect());
        };
        let new: BTreeSet<SessionId> = {
            let judged = self.judged();
            let sessions = rows.iter().filter_map(&session);
            sessions.filter(|one| !judged.contains_key(one)).collect()
        };
        let (app, tenant) = (self.app, self.caller.tenant);
        let found: Vec<(SessionId, bool)> = futures::stream::iter(new)
            .map(|one| async move {
                let found = has_session(app, binding, tenant, Some(one)).await?;
                store::Result::Ok((one, found))
            })
            .buffer_unordered(READ_AT_ONCE)
            .try_collect()
            .await?;
        let mut judged = self.judged();
        judged.extend(found);
        let marked = rows.into_iter().map(|row| {
            let is_inside = session(&row).is_some_and(|one| judged.get(&one) == Some(&true));
            (row, is_inside)
        });
        Ok(marked.collect())
    }

    fn judged(&self) -> MutexGuard<'_, BTreeMap<SessionId, bool>> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bound_key_reaches_of_every_operation() {
        let operations = crate::router::operations().into_iter();
        let lines = operations.map(|(method, path)| {
            let reach = Reach::of(&method, &path);
            format!("{method} {path}: {reach:?}")
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_unstable();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
