//! The loop that makes the calls of this process's tools.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use crate::api::ClaimCallsQuery;
use crate::client::Client;
use crate::clock;
use crate::error::{Error, Kind};
use crate::question::post;
use crate::tool::{Tool, ToolCall};
use crate::types::{
    Asked, CallToMake, ClaimBody, HeldClaim, PostedResultStatus, ReleaseBody, RenewBody, ResultBody,
};

const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// How long one request waits for calls, and the end of the loop for its response.
const LOOK: &str = "2s";

/// The most calls of a request.
const CLAIMED_MAX: usize = 100;

/// Makes the calls of some tools, wherever in the tenant they wait. Of several loops that have a tool, on any machines,
/// one gets each call: it claims the call, renews the claim while the tool runs, and reports the result with it.
#[derive(Debug)]
#[must_use = "it makes calls while it runs"]
pub struct ToolLoop {
    client: Client,
    tools: Vec<Tool>,
    lease: Duration,
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
            lease: Duration::from_secs(30),
            concurrency: 32,
        }
    }

    /// How long the calls of a loop that died stay its own: from a second to an hour, 30 s by default.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
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
    /// The calls under way, with their claims.
    making: Mutex<BTreeMap<String, String>>,
    lease: Duration,
    concurrency: usize,
    stopped: watch::Receiver<bool>,
}

impl Shared {
    fn of(from: ToolLoop, stopped: watch::Receiver<bool>) -> Result<Arc<Self>, Error> {
        let count = from.tools.len();
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
        if !(Duration::from_secs(1)..=Duration::from_hours(1)).contains(&from.lease) {
            return Err(Error::Setup(
                "a lease is from a second to an hour".to_owned(),
            ));
        }
        Ok(Arc::new(Self {
            client: from.client,
            tools,
            making: Mutex::default(),
            lease: from.lease,
            concurrency: from.concurrency,
            stopped,
        }))
    }

    fn making(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> String {
        format!("{}ms", self.lease.as_millis())
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
        // Renewals end with the loop, however it ends: claims of nobody must lapse.
        tokio::select! {
            ended = self.clone().take_and_make() => ended,
            () = self.renew() => Ok(()),
        }
    }

    async fn take_and_make(self: Arc<Self>) -> Result<(), Error> {
        let mut making = JoinSet::new();
        // A request whose response is lost is repeated with its key, and gets the calls that it got.
        let mut key = clock::key();
        let mut ended = Ok(());
        while !self.is_stopped() {
            while let Some(made) = making.try_join_next() {
                ended = ended.and(reported(made));
            }
            if ended.is_err() {
                break;
            }
            let room = self.concurrency.saturating_sub(making.len());
            if room == 0 {
                if let Some(made) = making.join_next().await {
                    ended = ended.and(reported(made));
                }
                continue;
            }
            match self.claim(room, &key).await {
                Ok(calls) => {
                    key = clock::key();
                    if self.is_stopped() {
                        self.give_back(&calls).await;
                        break;
                    }
                    for call in calls {
                        let id = call.call_id.clone();
                        // If it is under way, its claim had lapsed: what already runs is reported with the new one.
                        if self.making().insert(id, call.claim.clone()).is_none() {
                            making.spawn(self.clone().make(call));
                        }
                    }
                }
                Err(error) if error.kind() == Some(Kind::Denied) => {
                    ended = Err(error);
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot look for calls");
                    self.pause(AWAY_PAUSE).await;
                }
            }
        }
        while let Some(made) = making.join_next().await {
            ended = ended.and(reported(made));
        }
        ended
    }

    /// It is not broken off: the server may have given calls to it already.
    async fn claim(&self, room: usize, key: &str) -> Result<Vec<CallToMake>, Error> {
        let limit = u32::try_from(room.min(CLAIMED_MAX)).unwrap_or(1);
        let body = ClaimBody {
            names: self.tools.keys().cloned().collect(),
            limit: Some(limit),
            lease: Some(self.lease()),
        };
        let query = ClaimCallsQuery {
            wait: Some(LOOK.to_owned().into()),
        };
        let claimed = self.client.api().claim_calls(&body, &query, Some(key));
        Ok(claimed.await?.calls)
    }

    async fn give_back(&self, calls: &[CallToMake]) {
        let claims = calls.iter().map(|call| HeldClaim {
            call_id: call.call_id.clone(),
            claim: call.claim.clone(),
        });
        let body = ReleaseBody {
            claims: claims.collect(),
        };
        if body.claims.is_empty() {
            return;
        }
        if let Err(error) = self.client.api().release_claims(&body).await {
            tracing::warn!(%error, "calls stay claimed until their claims lapse");
        }
    }

    async fn renew(&self) {
        let third = self.lease / 3;
        loop {
            clock::sleep(third).await;
            let held: Vec<HeldClaim> = {
                let making = self.making();
                let held = making.iter();
                held.map(|(call_id, claim)| HeldClaim {
                    call_id: call_id.clone(),
                    claim: claim.clone(),
                })
                .collect()
            };
            for claims in held.chunks(CLAIMED_MAX) {
                let body = RenewBody {
                    claims: claims.to_vec(),
                    lease: Some(self.lease()),
                };
                let api = self.client.api();
                // One that hangs must not keep the next one until claims have lapsed. A claim that lapses meanwhile may
                // still be renewed.
                let renewed = tokio::select! {
                    renewed = api.renew_claims(&body) => renewed.map(drop),
                    () = clock::sleep(third) => Err(Error::Unreachable("no answer in time".to_owned())),
                };
                if let Err(error) = renewed {
                    tracing::warn!(%error, "cannot renew claims");
                    break;
                }
            }
        }
    }

    /// Makes a call and reports it. It fails if the key may not report, or the loop is stopped while nobody takes the report.
    async fn make(self: Arc<Self>, call: CallToMake) -> Result<(), Error> {
        let mut reported = Ok(());
        if let Some(tool) = self.tools.get(&call.name) {
            let result = Self::result(tool, &call).await;
            reported = self.report(&call, result).await;
            if let Err(error) = &reported {
                tracing::warn!(call = call.call_id, %error, "a call could not be reported");
            }
        }
        self.making().remove(&call.call_id);
        reported
    }

    async fn result(tool: &Tool, call: &CallToMake) -> ResultBody {
        let mut result = ResultBody {
            call_id: call.call_id.clone(),
            answers: Some(Asked::Answer),
            ..ResultBody::default()
        };
        let given = ToolCall::new(
            &call.call_id,
            &call.name,
            call.arguments.clone().into(),
            &call.session_id,
            &call.send_id,
        );
        match tool.call(given).await {
            Ok(value) => result.output = Some(value),
            Err(error) => result.error = Some(error),
        }
        result
    }

    /// Until the server has the result, or nobody wants it any longer.
    async fn report(&self, call: &CallToMake, mut result: ResultBody) -> Result<(), Error> {
        let current = || self.making().get(&call.call_id).cloned();
        loop {
            result.claim = current();
            match post(&self.client, &call.session_id, &result).await {
                Ok(PostedResultStatus::Locked) => {}
                Ok(PostedResultStatus::ClaimLost) if result.claim != current() => continue,
                Ok(status) => {
                    if !matches!(status, PostedResultStatus::Accepted) {
                        tracing::warn!(call = call.call_id, ?status, "a result came too late");
                    }
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    Some(Kind::NotFound) => return Ok(()),
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

/// What became of a call's report. A panic of a tool is its result, and nothing else of it panics.
fn reported(made: Result<Result<(), Error>, JoinError>) -> Result<(), Error> {
    made.unwrap_or(Ok(()))
}
