//! What a key can reach if it is bound to a part of its tenant. This is a function of the method
//! and the route of a request, so that an endpoint that nobody considered is refused.

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
use super::operations::Operation;

/// How a request is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Allowed: it neither shows nor creates anything that a key could be bound to.
    Free,
    /// By the session in its path.
    Session,
    /// By the session of the send in its path.
    Send,
    /// By the session of the timer in its path. A timer that starts runs has none and is out of
    /// reach.
    Timer,
    /// By the session of the run in its path. A run without a session is out of reach.
    Run,
    /// By the published agent in its path.
    Agent,
    /// By the memory entry in its path.
    Memory,
    /// By its handler, which checks its body, its query and what it lists.
    Handler,
    /// Refused: it concerns the tenant as a whole.
    Closed,
}

/// How many sessions are read at once to check the rows of a list.
const READ_AT_ONCE: usize = 16;

impl Reach {
    /// How a request with this method to this route is checked.
    pub(crate) fn of(method: &Method, route: &str) -> Self {
        let listed = Operation::of(method, route);
        listed.map_or(Self::Closed, |operation| operation.reach)
    }
}

/// Refuses a request whose path names something outside its key's binding, as if that did not
/// exist.
pub(crate) async fn enter(
    app: &App,
    (tenant, binding): (TenantId, &Binding),
    method: &Method,
    route: &str,
    path: Option<&RawPathParams>,
) -> Result<(), Error> {
    // There is nothing at a path without a route.
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

/// The response to a request that concerns the tenant as a whole.
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

/// Determines which rows of a list are shown, by their sessions: those that lie inside the caller's binding, and
/// whose agent is asked for. Each session is read once, even if a page is read in several pieces.
pub(crate) struct Inside<'a> {
    app: &'a App,
    caller: &'a Caller,
    agent: Option<&'a str>,
    judged: Mutex<BTreeMap<SessionId, bool>>,
}

impl<'a> Inside<'a> {
    pub(crate) fn of(app: &'a App, caller: &'a Caller) -> Self {
        Self {
            app,
            caller,
            agent: None,
            judged: Mutex::default(),
        }
    }

    /// Shows only rows whose session's agent has this name, if one is given.
    pub(crate) fn of_agent(self, agent: Option<&'a str>) -> Self {
        Self { agent, ..self }
    }

    pub(crate) fn app(&self) -> &App {
        self.app
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.caller.tenant
    }

    /// The session that a list is asked for, or else the only one of which it can show anything: the others are not read.
    pub(crate) fn session(&self, asked: Option<SessionId>) -> Option<SessionId> {
        asked.or_else(|| {
            let mut bound = self.caller.binding()?.sessions.iter().copied();
            bound.next().filter(|_| bound.next().is_none())
        })
    }

    /// Rows, and whether each is shown. Rows without a session lie outside every binding, and have no agent.
    pub(crate) async fn mark<T>(
        &self,
        rows: Vec<T>,
        session: impl Fn(&T) -> Option<SessionId>,
    ) -> Result<Vec<(T, bool)>, Error> {
        if self.caller.binding().is_none() && self.agent.is_none() {
            return Ok(rows.into_iter().map(|row| (row, true)).collect());
        }
        let new: BTreeSet<SessionId> = {
            let judged = self.judged();
            let sessions = rows.iter().filter_map(&session);
            sessions.filter(|one| !judged.contains_key(one)).collect()
        };
        let found: Vec<(SessionId, bool)> = futures::stream::iter(new)
            .map(|one| async move { store::Result::Ok((one, self.shows(one).await?)) })
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

    async fn shows(&self, session: SessionId) -> store::Result<bool> {
        let tenant = self.caller.tenant;
        let found = self.app.store.get_session(SessionKey { tenant, session });
        let binding = self.caller.binding();
        Ok(found.await?.is_some_and(|found| {
            binding.is_none_or(|binding| binding.holds(&found))
                && self
                    .agent
                    .is_none_or(|name| found.agent.name.as_deref() == Some(name))
        }))
    }

    fn judged(&self) -> MutexGuard<'_, BTreeMap<SessionId, bool>> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
