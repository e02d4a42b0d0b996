//! The loop that makes the calls of this process's tools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::api::ListSendsQuery;
use crate::client::Client;
use crate::clock;
use crate::error::{Error, Kind};
use crate::journal::{Entry, Journal};
use crate::question::post;
use crate::tool::{Tool, ToolCall};
use crate::types::{
    Asked, PostedResultStatus, Repeat, ResultBody, SendStatus, WaitingCall, WaitingOn,
};

const FOUND_PAUSE: Duration = Duration::from_millis(100);
const IDLE_PAUSE: Duration = Duration::from_millis(500);
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// How long a send that waits for tools of others is not looked at again.
const LOOKED_AT: Duration = Duration::from_secs(5);

const UNKNOWN_OUTCOME: &str = "tool.unknown_outcome: the process that made this call ended before it had a result; it may have been done";

/// Makes the waiting calls of some tools, wherever in the tenant they wait, and posts their results.
#[derive(Debug)]
#[must_use = "it makes calls while it runs"]
pub struct ToolLoop {
    client: Client,
    tools: Vec<Tool>,
    journal: Option<PathBuf>,
    concurrency: usize,
}

/// A loop that runs beside the rest of the program. Dropping it ends it at once, with the calls that it is making.
#[derive(Debug)]
pub struct ServingTools {
    stop: watch::Sender<bool>,
    running: Option<JoinHandle<Result<(), Error>>>,
}

impl ServingTools {
    /// Takes no more calls, and waits until those under way are finished and reported.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.send_replace(true);
        match self.running.take() {
            Some(running) => running
                .await
                .map_err(|error| Error::Setup(format!("the loop broke off: {error}")))?,
            None => Ok(()),
        }
    }
}

impl Drop for ServingTools {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

impl ToolLoop {
    pub(crate) fn new(client: Client, tools: Vec<Tool>) -> Self {
        Self {
            client,
            tools,
            journal: None,
            concurrency: 32,
        }
    }

    /// A folder on a local disk in which the loop notes the `once` calls that it begins, and locks those that it is making.
    pub fn journal(mut self, folder: impl Into<PathBuf>) -> Self {
        self.journal = Some(folder.into());
        self
    }

    /// Calls that are made at a time: 32 by default.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Runs beside the rest of the program.
    pub fn start(self) -> Result<ServingTools, Error> {
        let (stop, stopped) = watch::channel(false);
        let shared = Shared::of(self, stopped)?;
        let running = Some(tokio::spawn(shared.run()));
        Ok(ServingTools { stop, running })
    }

    /// Runs until this future is ready, then finishes and reports what is under way. Only a key that is not accepted ends it
    /// otherwise.
    pub async fn run_until(self, stopping: impl Future<Output = ()>) -> Result<(), Error> {
        let (stop, stopped) = watch::channel(false);
        let running = Shared::of(self, stopped)?.run();
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            () = stopping => {}
        }
        stop.send_replace(true);
        running.await
    }
}

/// What the makers of calls share.
struct Shared {
    client: Client,
    tools: BTreeMap<String, Tool>,
    journal: Option<Journal>,
    slots: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

/// For each send that waits for others: its rounds, and until when it is not looked at again.
type LookedAt = BTreeMap<String, (i32, Instant)>;

impl Shared {
    fn of(from: ToolLoop, stopped: watch::Receiver<bool>) -> Result<Arc<Self>, Error> {
        let count = from.tools.len();
        let once = from
            .tools
            .iter()
            .find(|tool| *tool.repeats() == Repeat::Once);
        if let (Some(tool), None) = (once, &from.journal) {
            return Err(Error::Setup(format!(
                "{} is not to be repeated: name a folder as the journal, in which the loop remembers over its own death what \
                 it began, or say that it may be done again (Repeat::Keyed, Repeat::Safe)",
                tool.name()
            )));
        }
        let tools: BTreeMap<_, _> = from
            .tools
            .into_iter()
            .map(|tool| (tool.name().to_owned(), tool))
            .collect();
        if tools.is_empty() || tools.len() < count {
            return Err(Error::Setup(
                "a loop needs tools, each with a name of its own".to_owned(),
            ));
        }
        let journal = from
            .journal
            .map(|folder| Journal::open(&folder))
            .transpose();
        Ok(Arc::new(Self {
            client: from.client,
            tools,
            journal: journal
                .map_err(|error| Error::Setup(format!("the journal cannot be used: {error}")))?,
            slots: Arc::new(Semaphore::new(from.concurrency)),
            stopped,
        }))
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    async fn pause(&self, pause: Duration) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = clock::sleep(pause) => {}
        }
    }

    async fn run(self: Arc<Self>) -> Result<(), Error> {
        let mut making = JoinSet::new();
        let mut known = BTreeSet::new();
        let mut looked_at = LookedAt::new();
        while !self.is_stopped() {
            while let Some(made) = making.try_join_next() {
                known.remove(&made.unwrap_or_default());
            }
            let pause = match self.waiting(&mut looked_at).await {
                Ok(calls) => {
                    let new = calls
                        .into_iter()
                        .filter(|call| known.insert(call.call_id.clone()));
                    let before = making.len();
                    for call in new {
                        making.spawn(self.clone().make(call));
                    }
                    let is_busy = before > 0 || !making.is_empty();
                    if is_busy { FOUND_PAUSE } else { IDLE_PAUSE }
                }
                Err(error) if error.kind() == Some(Kind::Denied) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "cannot look for calls");
                    AWAY_PAUSE
                }
            };
            self.pause(pause).await;
        }
        while making.join_next().await.is_some() {}
        Ok(())
    }

    /// The calls of these tools that wait. The one place that decides which calls are this loop's: the server has no way yet to
    /// give a call to one loop only, so that two loops on two machines may both make one.
    async fn waiting(&self, looked_at: &mut LookedAt) -> Result<Vec<WaitingCall>, Error> {
        let now = clock::now();
        let query = ListSendsQuery {
            status: Some(SendStatus::Waiting),
            limit: Some(200),
            ..ListSendsQuery::default()
        };
        let mut sends = self.client.api().list_sends(&query).all().await?;
        sends.retain(|send| send.waiting_on == Some(WaitingOn::Tool));
        let mut looked = LookedAt::new();
        let mut due = BTreeMap::new();
        for send in &sends {
            if let Some(&(rounds, until)) = looked_at.get(&send.id) {
                looked.insert(send.id.clone(), (rounds, until));
                if rounds >= send.rounds && until > now {
                    continue;
                }
            }
            due.insert(send.id.clone(), (send.session_id.clone(), send.rounds));
        }
        let sessions: BTreeSet<&String> = due.values().map(|(session, _)| session).collect();
        let mut found = BTreeMap::new();
        for session in sessions {
            let calls = self.calls_of(session).await?;
            found.extend(calls.into_iter().map(|call| (call.call_id.clone(), call)));
        }
        let ours: BTreeSet<&String> = found.values().map(|call| &call.send_id).collect();
        for (id, (_, rounds)) in due {
            if ours.contains(&id) {
                looked.remove(&id);
            } else {
                looked.insert(id, (rounds, now + LOOKED_AT));
            }
        }
        *looked_at = looked;
        Ok(found.into_values().collect())
    }

    async fn calls_of(&self, session: &str) -> Result<Vec<WaitingCall>, Error> {
        let calls = match self.client.api().list_waiting_calls(session).all().await {
            Err(error) if error.kind() == Some(Kind::NotFound) => return Ok(Vec::new()),
            calls => calls?,
        };
        let is_ours = |call: &WaitingCall| {
            let waits = call.wants == Asked::Answer && call.waiting_on == WaitingOn::Tool;
            waits && self.tools.contains_key(&call.name)
        };
        Ok(calls.into_iter().filter(is_ours).collect())
    }

    /// Makes a call and reports it. Its id, so that it is known to be over.
    async fn make(self: Arc<Self>, call: WaitingCall) -> String {
        let id = call.call_id.clone();
        if let Err(error) = self.try_make(&call).await {
            tracing::warn!(call = id, %error, "a call could not be made or reported");
        }
        id
    }

    async fn try_make(&self, call: &WaitingCall) -> Result<(), Error> {
        let (Some(tool), Ok(_slot)) = (self.tools.get(&call.name), self.slots.acquire().await)
        else {
            return Ok(());
        };
        let mut entry = None;
        if let Some(journal) = self
            .journal
            .as_ref()
            .filter(|_| *tool.repeats() == Repeat::Once)
        {
            let Some(taken) = journal.take(&call.call_id).map_err(broken)? else {
                return Ok(());
            };
            // Another loop may have reported it since this one saw it wait.
            let still = self.calls_of(&call.session_id).await?;
            if !still.iter().any(|one| one.call_id == call.call_id) {
                return taken.forget().map_err(broken);
            }
            entry = Some(taken);
        }
        let result = self.result(tool, call, entry.as_mut()).await?;
        let is_over = self.report(call, result).await?;
        match entry {
            Some(entry) if is_over => entry.forget().map_err(broken),
            _ => Ok(()),
        }
    }

    async fn result(
        &self,
        tool: &Tool,
        call: &WaitingCall,
        mut entry: Option<&mut Entry>,
    ) -> Result<ResultBody, Error> {
        let mut result = ResultBody {
            call_id: call.call_id.clone(),
            answers: Some(Asked::Answer),
            ..ResultBody::default()
        };
        if let Some(entry) = &mut entry {
            if let Some(known) = entry.result.take() {
                return Ok(known);
            }
            if entry.begun {
                result.error = Some(UNKNOWN_OUTCOME.to_owned());
                return Ok(result);
            }
            entry.begin().map_err(broken)?;
        }
        let given = ToolCall::new(
            &call.call_id,
            &call.name,
            call.arguments.clone(),
            &call.session_id,
            &call.send_id,
        );
        match tool.call(given).await {
            Ok(value) => result.output = Some(value),
            Err(error) => result.error = Some(error),
        }
        if let Some(entry) = entry {
            entry.end(&result).map_err(broken)?;
        }
        Ok(result)
    }

    /// Whether the server has the result, or nobody wants it any longer.
    async fn report(&self, call: &WaitingCall, mut result: ResultBody) -> Result<bool, Error> {
        loop {
            match post(&self.client, &call.session_id, &result).await {
                Ok(PostedResultStatus::Locked) => {}
                Ok(_) => return Ok(true),
                Err(error) => match error.kind() {
                    Some(Kind::NotFound) => return Ok(true),
                    Some(Kind::Denied) => return Err(error),
                    Some(Kind::Invalid) if result.error.is_none() => {
                        result.output = None;
                        result.error = Some(format!("the result was refused: {error}"));
                        continue;
                    }
                    _ if !error.is_transient() || self.is_stopped() => return Err(error),
                    _ => {
                        tracing::warn!(call = call.call_id, %error, "a result cannot be reported yet");
                    }
                },
            }
            clock::sleep(AWAY_PAUSE).await;
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by it")]
fn broken(error: std::io::Error) -> Error {
    Error::Setup(format!("the journal cannot be used: {error}"))
}
