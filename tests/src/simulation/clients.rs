//! Clients that call the API through any available scheduler, retry until they get an answer, and
//! record what they were told.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::http::{Method, Request};
use futures::StreamExt as _;
use mainspring_shared::agent::OnBusy;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::chance::Chance;
use super::plan::{Op, What};
use super::system::Core;
use crate::faults::stream::parse;
use crate::history::{self, Book, Reading, Seen, Told};

/// Timeout of a request, in virtual milliseconds.
const REQUEST_MS: u64 = 8_000;

/// How long a client keeps retrying once all faults are over, in virtual milliseconds.
const PATIENCE_MS: u64 = 120_000;

/// The tools of every session.
const TOOLS: [&str; 7] = [
    "look",
    "put",
    "act",
    "alone",
    "slow",
    "ask_person",
    "spawn_agent",
];

/// What all clients share.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) core: Arc<Core>,
    pub(super) book: Book,
    pub(super) sessions: Mutex<Vec<String>>,
    pub(super) sends: Mutex<Vec<String>>,
    pub(super) timers: Mutex<Vec<String>>,
    pub(super) runs: Mutex<Vec<String>>,
    /// Marks of all user texts sent.
    pub(super) marks: Mutex<Vec<String>>,
    pub(super) readings: Mutex<Vec<Reading>>,
    /// Anomalies that clients reported.
    pub(super) strange: Mutex<Vec<String>>,
    chance: Mutex<Chance>,
}

/// The response to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Whether the response replays an earlier request with the same key.
    replayed: bool,
    /// Whether an earlier attempt got no response.
    unheard: bool,
    pub(super) body: Value,
}

/// Ignores poisoning: what is locked here is never left half changed.
pub(super) fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    pub(super) fn new(core: Arc<Core>) -> Arc<Self> {
        let chance = Mutex::new(Chance::new(core.plan.seed ^ 0xc11e_4715));
        Arc::new(Self {
            core,
            book: Book::default(),
            sessions: Mutex::default(),
            sends: Mutex::default(),
            timers: Mutex::default(),
            runs: Mutex::default(),
            marks: Mutex::default(),
            readings: Mutex::default(),
            strange: Mutex::default(),
            chance,
        })
    }

    fn draw(&self, bound: u64) -> u64 {
        locked(&self.chance).below(bound)
    }

    pub(super) fn complain(&self, what: String) {
        locked(&self.strange).push(what);
    }

    /// Sends a request once, to any scheduler; `None` if there was no response or it was lost.
    async fn once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Option<Answer> {
        let (router, _) = self.core.api(self.draw(16) as usize)?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let body = body.map_or_else(Body::empty, |json| Body::from(json.to_string()));
        if method == Method::POST {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(body).expect("a request");
        // Some clients hang up before they get a response.
        let patience = if self.draw(25) == 0 {
            self.draw(30)
        } else {
            REQUEST_MS
        };
        let answered = async {
            let response = router.oneshot(request).await.ok()?;
            let status = response.status().as_u16();
            let replayed = response.headers().contains_key("idempotency-replayed");
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            let body = serde_json::from_slice(&bytes.ok()?).unwrap_or_default();
            Some(Answer {
                status,
                replayed,
                unheard: false,
                body,
            })
        };
        let limit = self.core.time.sleep(patience);
        let answer = tokio::select! {
            biased;
            answer = answered => answer,
            () = limit => None,
        };
        // Some responses are lost.
        answer.filter(|_| self.draw(25) != 0)
    }

    /// Retries until there is a definite answer. Returns `None`, and records a complaint, if there
    /// never is one.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        key: Option<&str>,
    ) -> Option<Answer> {
        let begun = self.core.time.ms();
        let mut last = None;
        let mut unheard = false;
        loop {
            let answer = self.once(&method, path, body.as_ref(), key).await;
            if let Some(mut answer) = answer {
                if !matches!(answer.status, 429 | 500..=599) {
                    self.core
                        .say(|| format!("{method} {path}: {}", answer.status));
                    answer.unheard = unheard;
                    return Some(answer);
                }
                last = Some(answer);
            } else {
                unheard = true;
            }
            let since = self.core.over_ms().max(begun);
            if self.core.time.ms() > since + PATIENCE_MS {
                self.complain(format!("{method} {path} is not answered: {last:?}"));
                return None;
            }
            self.core.time.sleep(200 + self.draw(600)).await;
        }
    }

    /// Creates the sessions.
    pub(super) async fn open(&self) {
        for n in 0..self.core.plan.sessions {
            let body = json!({ "agent": { "system_prompt": "work", "tools": TOOLS } });
            let key = format!("session-{n}");
            let made = self
                .ask(Method::POST, "/v1/sessions", Some(body), Some(&key))
                .await;
            match made.as_ref().and_then(|made| made.body["id"].as_str()) {
                Some(id) => locked(&self.sessions).push(id.to_owned()),
                None => self.complain(format!("no session was made: {made:?}")),
            }
        }
    }

    fn session(&self, n: usize) -> Option<String> {
        let sessions = locked(&self.sessions);
        sessions.get(n.checked_rem(sessions.len())?).cloned()
    }

    fn nth(of: &Mutex<Vec<String>>, n: usize) -> Option<String> {
        let all = locked(of);
        all.get(n.checked_rem(all.len())?).cloned()
    }

    /// Performs a client's operations one after another.
    pub(super) async fn work(&self, client: usize, ops: Vec<(usize, Op)>) {
        for (n, op) in ops {
            self.core.time.sleep(op.pause_ms).await;
            self.step(client, n, op.what).await;
        }
    }

    async fn step(&self, client: usize, n: usize, what: What) {
        match what {
            What::Send { .. } => self.send(client, n, what).await,
            What::Cancel(nth) => {
                let Some(send) = Self::nth(&self.sends, nth) else {
                    return;
                };
                let path = format!("/v1/sends/{send}/cancel");
                let begun = self.book.moment();
                let told = self.ask(Method::POST, &path, None, None).await;
                let told = self.heard(told, &[200, 202]);
                self.book
                    .note(client, begun, history::Op::Cancel { send }, told);
            }
            What::Read(nth) => {
                if let Some(send) = Self::nth(&self.sends, nth) {
                    self.read(client, send).await;
                }
            }
            What::Transcript(session) => {
                if let Some(session) = self.session(session) {
                    self.transcript(client, session).await;
                }
            }
            What::Timer { .. } | What::CancelTimer(_) | What::Run { .. } | What::CancelRun(_) => {
                self.schedule(n, what).await;
            }
        }
    }

    async fn send(&self, client: usize, n: usize, what: What) {
        let What::Send {
            session,
            words,
            mode,
            delay_ms,
            deadline_ms,
        } = what
        else {
            return;
        };
        let Some(session) = self.session(session) else {
            return;
        };
        let mark = format!("m{n}");
        locked(&self.marks).push(mark.clone());
        let mut options = json!({ "on_busy": mode });
        if let Some(ms) = delay_ms {
            options["delay"] = json!(format!("{ms}ms"));
        }
        if let Some(ms) = deadline_ms {
            options["deadline"] = json!(format!("{ms}ms"));
        }
        let body = json!({ "input": format!("{mark} {words}"), "options": options });
        let path = format!("/v1/sessions/{session}/sends");
        let begun = self.book.moment();
        let mut told = self.ask(Method::POST, &path, Some(body), Some(&mark)).await;
        let joins = !matches!(mode, OnBusy::Enqueue | OnBusy::Reject);
        if let Some(told) = told.as_mut().filter(|told| joins && told.replayed) {
            // A replay does not say whether its message was added to an existing send.
            told.body["inbox_item"] = Value::Null;
        }
        let op = history::Op::Send {
            key: mark,
            session,
            in_order: delay_ms.is_none() && mode == OnBusy::Enqueue,
        };
        self.book.note(client, begun, op, self.heard(told, &[202]));
    }

    /// Performs operations on timers and runs.
    async fn schedule(&self, n: usize, what: What) {
        match what {
            What::Timer {
                session,
                after_ms,
                every_s,
                times,
            } => {
                let Some(session) = self.session(session) else {
                    return;
                };
                let mark = format!("t{n}");
                locked(&self.marks).push(mark.clone());
                let mut body = json!({
                    "session_id": session, "input": format!("{mark} {{\"ms\":20}}"),
                    "after": format!("{after_ms}ms"),
                });
                if let Some(every) = every_s {
                    body["every"] = json!(format!("{every}s"));
                    body["max_occurrences"] = json!(times);
                }
                let made = self
                    .ask(Method::POST, "/v1/timers", Some(body), Some(&mark))
                    .await;
                self.keep(made, 201, &self.timers);
            }
            What::CancelTimer(nth) => {
                if let Some(timer) = Self::nth(&self.timers, nth) {
                    let path = format!("/v1/timers/{timer}");
                    self.ask(Method::DELETE, &path, None, None).await;
                }
            }
            What::Run { leaves, at_once } => {
                let leaf = |i: u64| {
                    let mark = format!("r{n}l{i}");
                    locked(&self.marks).push(mark.clone());
                    json!({ "type": "agent", "id": format!("l{i}"),
                            "input": format!("{mark} {{\"ms\":{}}}", 50 * (i + 1)),
                            "spec": { "name": "a", "system_prompt": "work" } })
                };
                let leaves: Vec<Value> = (0..leaves).map(leaf).collect();
                let root = if at_once {
                    json!({ "type": "parallel", "branches": leaves })
                } else {
                    json!({ "type": "sequence", "steps": leaves })
                };
                let body = json!({ "spec": { "name": "run", "root": root } });
                let key = format!("r{n}");
                let made = self
                    .ask(Method::POST, "/v1/runs", Some(body), Some(&key))
                    .await;
                self.keep(made, 202, &self.runs);
            }
            What::CancelRun(nth) => {
                if let Some(run) = Self::nth(&self.runs, nth) {
                    let path = format!("/v1/runs/{run}/cancel");
                    self.ask(Method::POST, &path, Some(json!({})), None).await;
                }
            }
            What::Send { .. } | What::Cancel(_) | What::Read(_) | What::Transcript(_) => {}
        }
    }

    fn keep(&self, made: Option<Answer>, wanted: u16, list: &Mutex<Vec<String>>) {
        let Some(made) = made else { return };
        match made.body["id"].as_str() {
            Some(id) if made.status == wanted || made.status == 200 => {
                locked(list).push(id.to_owned());
            }
            _ => self.complain(format!("nothing was made: {made:?}")),
        }
    }

    /// The definite outcome in an answer, if any; a send in it becomes known to all clients.
    fn heard(&self, answer: Option<Answer>, good: &[u16]) -> Told {
        let Some(answer) = answer else {
            return Told::Unknown;
        };
        if !good.contains(&answer.status) && answer.unheard {
            // An earlier attempt may still be in flight: a refusal does not use up the key.
            return Told::Unknown;
        }
        if !good.contains(&answer.status) {
            let code = answer.body["code"].as_str().unwrap_or_default();
            return Told::No(format!("{} {code}", answer.status));
        }
        if let Some(id) = answer.body["id"].as_str() {
            let mut sends = locked(&self.sends);
            if !sends.iter().any(|known| known == id) {
                sends.push(id.to_owned());
            }
        }
        Told::Yes(answer.body)
    }

    pub(super) async fn read(&self, client: usize, send: String) {
        let begun = self.book.moment();
        let path = format!("/v1/sends/{send}");
        let told = self.ask(Method::GET, &path, None, None).await;
        let told = self.heard(told, &[200]);
        self.book
            .note(client, begun, history::Op::Read { send }, told);
    }

    /// Reads a whole transcript page by page; it may grow meanwhile.
    pub(super) async fn transcript(&self, client: usize, session: String) {
        let begun = self.book.moment();
        let mut messages = Vec::new();
        let mut cursor = String::new();
        let told = loop {
            let path = format!("/v1/sessions/{session}/messages?limit=200{cursor}");
            let Some(mut page) = self.ask(Method::GET, &path, None, None).await else {
                break Told::Unknown;
            };
            if let Some(data) = page.body["data"].as_array_mut() {
                messages.append(data);
            }
            match page.body["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break Told::Yes(Value::Array(messages)),
            }
        };
        let op = history::Op::Transcript { session };
        self.book.note(client, begun, op, told);
    }

    /// Answers every call that waits for an answer, until aborted.
    pub(super) async fn answer(&self, client: usize) {
        let mut count = 0;
        loop {
            self.core.time.sleep(500 + self.draw(1_500)).await;
            let sessions = locked(&self.sessions).clone();
            for session in sessions {
                let path = format!("/v1/sessions/{session}/calls");
                let waiting = self.once(&Method::GET, &path, None, None).await;
                let Some(waiting) = waiting.filter(|waiting| waiting.status == 200) else {
                    continue;
                };
                for call in waiting.body["data"].as_array().into_iter().flatten() {
                    let (Some(id), Some(of)) =
                        (call["call_id"].as_str(), call["session_id"].as_str())
                    else {
                        continue;
                    };
                    count += 1;
                    self.post(client, id, of, format!("a{client}.{count}"))
                        .await;
                }
            }
        }
    }

    async fn post(&self, client: usize, call: &str, session: &str, text: String) {
        let body = json!({ "results": [{ "call_id": call, "output": text }] });
        let path = format!("/v1/sessions/{session}/tool-results");
        let begun = self.book.moment();
        // Without retries: if a retry learned that the call is already settled, it could not tell
        // by whom.
        let told = self.once(&Method::POST, &path, Some(&body), None).await;
        let told = match told {
            Some(told) if told.status == 200 => {
                Told::Yes(told.body["results"][0]["status"].clone())
            }
            Some(told) if told.status < 500 => Told::No(told.status.to_string()),
            _ => Told::Unknown,
        };
        self.core.say(|| format!("{call}: {told:?}"));
        let call = call.to_owned();
        self.book
            .note(client, begun, history::Op::Post { call, text }, told);
    }

    /// Follows a session from its first event, moving between schedulers.
    pub(super) async fn follow(&self, reading: usize) {
        loop {
            let (session, last) = {
                let readings = locked(&self.readings);
                let mut events = readings[reading].events.iter().rev();
                let last = events.find_map(|event| event.id.clone());
                (readings[reading].session.clone(), last)
            };
            self.listen(reading, &session, last.as_deref()).await;
            self.core.time.sleep(50 + self.draw(400)).await;
        }
    }

    /// Reads a stream until it ends or breaks.
    async fn listen(&self, reading: usize, session: &str, last: Option<&str>) -> Option<()> {
        let (router, gate) = self.core.api(self.draw(16) as usize)?;
        let mut request = Request::builder()
            .uri(format!("/v1/sessions/{session}/events"))
            .header("host", "localhost");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.body(Body::empty()).expect("a request");
        let opened = async { router.oneshot(request).await.ok() };
        let response = tokio::select! {
            biased;
            response = opened => response?,
            () = self.core.time.sleep(REQUEST_MS) => return None,
        };
        if response.status() != 200 {
            return None;
        }
        let mut pieces = response.into_body().into_data_stream();
        let mut unread = Vec::new();
        // Some readers reconnect for no reason.
        let hangs_up = self.core.time.ms()
            + if self.draw(3) == 0 {
                self.draw(9_000)
            } else {
                600_000
            };
        loop {
            let piece = tokio::select! {
                biased;
                piece = pieces.next() => piece?.ok()?,
                () = self.core.time.sleep(1_000) => {
                    if gate.is_dead() || self.core.time.ms() > hangs_up {
                        return None;
                    }
                    continue;
                }
            };
            unread.extend_from_slice(&piece);
            while let Some(at) = unread.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = unread.drain(..at + 2).collect();
                let text = std::str::from_utf8(&frame).unwrap_or_default();
                if let Ok(Some(event)) = parse(text) {
                    locked(&self.readings)[reading].events.push(Seen {
                        id: event.id,
                        name: event.name,
                        data: event.data,
                    });
                }
            }
        }
    }
}
