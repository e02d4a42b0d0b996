//! Requests that are answered when a send has ended: the stream of one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mainspring_scheduler::services::cancel;
use mainspring_scheduler::services::watch::Watcher;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::scoped;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ask::{RELATED, elicitation, request_id, requests};
use super::call;
use super::peer::Peer;
use crate::faces::asks::Ask;
use crate::faces::rpc::{self, Fault};
use crate::faces::sent::Sent;
use crate::gate::Admission;
use crate::router::Api;
use crate::sse;

/// Clients give up after a minute. Before that, a call is answered with how to wait on.
const PATIENCE: Duration = Duration::from_secs(50);

/// How often one call is asked about again without a word to the model.
const TURNS_MAX: u32 = 8;

/// How long a stream is silent at most.
const BEAT: Duration = Duration::from_secs(15);

/// How soon questions of agents below are noticed, which wake nobody here.
const LOOK: Duration = Duration::from_secs(2);

/// Where a stream is: all that another scheduler has to know to go on with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) send: SendId,
    /// The id of the request.
    pub(super) id: Value,
    /// Under which name the client wants to hear of progress, if it does.
    pub(super) token: Value,
    /// How many rounds it was told of.
    pub(super) rounds: i32,
    /// What it was asked.
    pub(super) asked: Vec<String>,
    /// Whether the request asks for the result of a task.
    pub(super) is_task: bool,
    /// How often it has asked again.
    pub(super) turns: u32,
}

impl Place {
    /// Reads an event's id.
    pub(super) fn read(text: &str) -> Option<Self> {
        let json = URL_SAFE_NO_PAD.decode(text).ok()?;
        serde_json::from_slice(&json).ok()
    }

    fn written(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }
}

/// A request that is held.
pub(super) struct Held {
    app: Arc<Api>,
    peer: Peer,
    sent: Sent,
    place: Place,
    watcher: Watcher<SessionKey>,
    /// When the client is told to ask again.
    until: Option<Duration>,
    /// What is to be written.
    ahead: VecDeque<String>,
    abandoned: Abandoned,
    ended: bool,
    /// When something was written last.
    wrote_at: Duration,
}

/// Cancels the send of a call whose client has closed the stream.
struct Abandoned {
    app: Arc<Api>,
    of: Option<(TenantId, SendId)>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some((tenant, send)) = self.of.take() else {
            return;
        };
        let lifecycle = &self.app.process.lifecycle;
        if lifecycle.is_stopping() {
            return;
        }
        let app = self.app.clone();
        lifecycle.spawn(scoped(tenant, async move {
            // If it has ended meanwhile, there is nothing to cancel.
            let _ = cancel::send(&app, tenant, send, None).await;
        }));
    }
}

impl Held {
    pub(super) fn new(app: Arc<Api>, peer: Peer, sent: Sent, place: Place) -> Self {
        let until = (!place.is_task).then(|| app.clock.monotonic() + PATIENCE);
        let mut held = Self {
            watcher: app.watch.session(sent.send.key),
            abandoned: Abandoned {
                app: app.clone(),
                of: None,
            },
            until,
            wrote_at: app.clock.monotonic(),
            app,
            peer,
            sent,
            place,
            ahead: VecDeque::new(),
            ended: false,
        };
        if held.peer.primes {
            let id = held.place.written();
            held.ahead
                .push_back(format!("id: {id}\nretry: 500\ndata: \n\n"));
        }
        held
    }

    /// The same, whose send is cancelled if the client closes the stream.
    pub(super) fn cancelled_when_left(mut self, is_so: bool) -> Self {
        let send = &self.sent.send;
        self.abandoned.of = is_so.then_some((send.key.tenant, send.id));
        self
    }

    /// The response.
    pub(super) fn stream(self, admission: Admission) -> Response {
        sse::written(futures::stream::unfold(
            (self, admission),
            |(mut held, admission)| async move {
                let piece = held.next().await?;
                Some((piece, (held, admission)))
            },
        ))
    }

    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            if let Some(piece) = self.ahead.pop_front() {
                return Some(Ok(piece));
            }
            if self.ended {
                return None;
            }
            // It is read after it was subscribed to, so the end cannot be missed.
            match self.look().await {
                Ok(()) if !self.ahead.is_empty() => {}
                Ok(()) => {
                    if let Some(written) = self.wait().await {
                        return Some(written);
                    }
                }
                Err(fault) => {
                    let answer = fault.answer(&self.place.id);
                    self.end(&answer);
                }
            }
        }
    }

    /// Waits until there may be something new. Returns what keeps the connection alive meanwhile; ends the stream when
    /// the process ends, and the client goes on with another one.
    async fn wait(&mut self) -> Option<io::Result<String>> {
        loop {
            tokio::select! {
                biased;
                () = self.app.process.lifecycle.stopping() => {
                    self.abandoned.of = None;
                    self.ended = true;
                    // Who can read on does so where a stream ends; others have to see that it broke off.
                    return self.peer.is_modern.then(|| Err(sse::cut()));
                }
                () = self.watcher.woken() => return None,
                () = self.app.clock.sleep(LOOK) => {}
            }
            let now = self.app.clock.monotonic();
            if now.saturating_sub(self.wrote_at) >= BEAT {
                self.wrote_at = now;
                return Some(Ok(sse::BEAT.to_owned()));
            }
            let waits_below = self.sent.send.waiting_on == Some(WaitingOn::Agent);
            if waits_below || self.until.is_some_and(|until| now >= until) {
                return None;
            }
        }
    }

    /// Says what is new of the send.
    async fn look(&mut self) -> Result<(), Fault> {
        self.sent.again(&self.app).await?;
        self.progress();
        if self.sent.is_final() {
            let result = self.peer.completed(call::result(&self.peer, &self.sent));
            self.end(&rpc::result(&self.place.id.clone(), &result));
            return Ok(());
        }
        let mut open = self.sent.asks(&self.app).await?;
        open.retain(Ask::is_for_people);
        if self.peer.is_modern {
            let asked = requests(&self.peer, &open);
            if asked.as_object().is_some_and(|asked| !asked.is_empty()) {
                self.turn(Some(asked));
                return Ok(());
            }
        } else {
            for ask in &open {
                let id = request_id(&self.sent, ask);
                if self.place.asked.contains(&id) {
                    continue;
                }
                if let Some(mut params) = elicitation(&self.peer, ask) {
                    params["_meta"] = json!({ RELATED: { "taskId": self.sent.send.id } });
                    self.place.asked.push(id.clone());
                    let asks = json!({
                        "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params,
                    });
                    self.write(&asks);
                }
            }
        }
        let can_ask = open
            .iter()
            .any(|ask| elicitation(&self.peer, ask).is_some());
        let waits = self.sent.send.waiting_on == Some(WaitingOn::Human);
        if waits && !can_ask && !self.place.is_task && !open.is_empty() {
            let asked: Vec<String> = open.iter().map(Ask::message).collect();
            let why = format!(
                "A person has to answer first, elsewhere, since this client cannot ask one: {}",
                asked.join(" ")
            );
            let mut result = call::unfinished(&self.sent, &why);
            result["_meta"]["mainspring/status"] = json!("input_required");
            let result = self.peer.completed(result);
            self.end(&rpc::result(&self.place.id.clone(), &result));
        } else if self
            .until
            .is_some_and(|until| self.app.clock.monotonic() >= until)
        {
            self.turn(None);
        }
        Ok(())
    }

    /// Ends the request so that the client asks again: by itself, or by its model.
    fn turn(&mut self, asked: Option<Value>) {
        let result = if self.peer.is_modern && self.place.turns < TURNS_MAX {
            let state = format!("{}.{}", self.sent.send.id, self.place.turns);
            let mut result = json!({ "resultType": "input_required", "requestState": state });
            if let Some(asked) = asked {
                result["inputRequests"] = asked;
            }
            result
        } else {
            let result = call::unfinished(&self.sent, "The agent is still at work.");
            self.peer.completed(result)
        };
        self.end(&rpc::result(&self.place.id.clone(), &result));
    }

    /// Tells of rounds that have ended.
    fn progress(&mut self) {
        if self.place.token.is_null() || self.place.rounds >= self.sent.send.rounds {
            return;
        }
        self.place.rounds = self.sent.send.rounds;
        let rounds = self.place.rounds;
        let mut params = json!({
            "progressToken": self.place.token, "progress": rounds, "message": format!("round {rounds}"),
        });
        if self.place.is_task {
            params["_meta"] = json!({ RELATED: { "taskId": self.sent.send.id } });
        }
        self.write(
            &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
        );
    }

    fn write(&mut self, message: &Value) {
        self.wrote_at = self.app.clock.monotonic();
        let id = (!self.peer.is_modern).then(|| self.place.written());
        self.ahead.push_back(rpc::event(id.as_deref(), message));
    }

    fn end(&mut self, message: &Value) {
        self.write(message);
        self.abandoned.of = None;
        self.ended = true;
    }
}
