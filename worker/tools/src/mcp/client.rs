//! Our side of the protocol: what a server may tell and ask us, and requests to it.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::tool::Inquiry;
use mainspring_worker::tool::{Progress, ProgressReport};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientNotification, ClientRequest, CustomRequest, CustomResult, ElicitationCapability,
    ErrorCode, ErrorData, FormElicitationCapability, Implementation, JsonObject, MetaObject,
    PingRequest, ProgressNotificationParam, ProtocolVersion, RequestId, RequestMetaObject,
    UrlElicitationCapability,
};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RunningService,
};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::credentials::KnownSecrets;
use super::envelope;
use super::fault::Fault;
use super::inquiring::{self, Questions};
use super::listing;

/// Limit on the pages of a listing; more elements than any model can tell apart.
const PAGES_MAX: usize = 100;

/// Characters of a progress message that are shown.
const MESSAGE_CHARS_MAX: usize = 500;

/// Questions of one request that are not looked at yet, and questions of tasks that wait for their answers.
const QUESTIONS_MAX: usize = 16;
const TASK_QUESTIONS_MAX: usize = 256;

/// How long a question that does not say of which call it is waits until only one call is left that it can be of.
const ALONE_PATIENCE: Duration = Duration::from_secs(10);

/// How long telling a server that a request is not wanted any longer may take.
const TELL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server may take to be done with an abandoned call. A person answers later than that.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// An open connection as the library has it.
pub(super) type Service = RunningService<RoleClient, Client>;

/// A question of a server, and where its answer goes. Without an answer, nobody is asked.
#[derive(Debug)]
struct Pending {
    inquiry: Inquiry,
    answer: oneshot::Sender<Value>,
}

/// A request that is under way.
#[derive(Debug)]
struct InFlight {
    /// Its id as JSON.
    id: Value,
    reports: watch::Sender<Option<ProgressReport>>,
    /// Where its questions go, if it may ask.
    questions: Option<mpsc::Sender<Pending>>,
    /// The task that it is about.
    task: Option<String>,
}

/// Whom a question is of.
#[derive(Debug)]
enum Whose {
    Call(mpsc::Sender<Pending>),
    Task(String),
}

/// Offers servers to ask people, and listens for changes of their tools and the progress of calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    secrets: KnownSecrets,
    changes: Arc<AtomicU64>,
    /// The calls in flight by their progress tokens.
    calls: Arc<Mutex<HashMap<String, InFlight>>>,
    /// Woken when a call is over.
    over: Arc<Notify>,
    /// What tasks have asked, with their ids. It outlives the request during which it came: the task waits for the answer
    /// to this question, and may not ask it again.
    of_tasks: Arc<Mutex<Vec<(String, Pending)>>>,
    /// Woken when a task asks.
    asked: Arc<Notify>,
    /// Whether a question came that did not say of which call it was.
    is_unclear: Arc<AtomicBool>,
}

impl Client {
    /// A client for a server that knows these secrets, and may quote them.
    pub(super) fn new(secrets: KnownSecrets) -> Self {
        Self {
            secrets,
            ..Self::default()
        }
    }

    /// How many changes of its tools the server has reported.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Whether calls must be made one after the other, because the server does not say which one it asks for.
    pub(super) fn must_be_alone(&self) -> bool {
        self.is_unclear.load(Ordering::SeqCst)
    }

    fn listen(&self, token: String, call: InFlight) -> Listening {
        let reports = call.reports.subscribe();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.insert(token.clone(), call);
        Listening {
            calls: self.calls.clone(),
            over: self.over.clone(),
            token,
            reports,
        }
    }

    /// Whom a question is of: of the task or the request that it names, or of the only call that there is.
    async fn whose(&self, task: Option<&str>, during: Option<&Value>) -> Option<Whose> {
        if let Some(task) = task {
            return Some(Whose::Task(task.to_owned()));
        }
        if let Some(during) = during {
            let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let call = calls.values().find(|call| call.id == *during)?;
            return whose(call);
        }
        self.is_unclear.store(true, Ordering::SeqCst);
        let candidates = self.asking(None);
        let alone = async {
            loop {
                let over = self.over.notified();
                let left = self.asking(Some(&candidates));
                if left.len() <= 1 {
                    return left.into_iter().next();
                }
                over.await;
            }
        };
        let token = timeout(ALONE_PATIENCE, alone).await.ok()??;
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        whose(calls.get(&token)?)
    }

    /// The calls in flight that may ask, or those of them that are among these.
    fn asking(&self, among: Option<&BTreeSet<String>>) -> BTreeSet<String> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let asking = calls.iter().filter(|(token, call)| {
            whose(call).is_some() && among.is_none_or(|among| among.contains(*token))
        });
        asking.map(|(token, _)| token.clone()).collect()
    }

    /// Passes a question on; `None` if there is nobody to ask.
    fn pass(&self, whose: Whose, inquiry: Inquiry) -> Option<oneshot::Receiver<Value>> {
        let (answer, answered) = oneshot::channel();
        let pending = Pending { inquiry, answer };
        match whose {
            Whose::Call(questions) => questions.try_send(pending).ok()?,
            Whose::Task(task) => {
                let mut of_tasks = self.of_tasks.lock().unwrap_or_else(PoisonError::into_inner);
                of_tasks.retain(|(_, pending)| !pending.answer.is_closed());
                if of_tasks.len() >= TASK_QUESTIONS_MAX {
                    return None;
                }
                of_tasks.push((task, pending));
                self.asked.notify_waiters();
            }
        }
        Some(answered)
    }

    /// Answers the questions of a task whose answers are known; returns how many, or how its call ends if one is left.
    pub(super) fn open_question_of(
        &self,
        task: &str,
        questions: &mut Questions,
    ) -> Result<usize, Fault> {
        let mut of_tasks = self.of_tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut open, mut given) = (None, 0);
        let mut left = Vec::new();
        for (of, pending) in of_tasks.drain(..) {
            if of != task || open.is_some() {
                left.push((of, pending));
                continue;
            }
            match questions.answer(&pending.inquiry) {
                // The server may have withdrawn it meanwhile.
                Ok(reply) => {
                    given += usize::from(pending.answer.send(reply).is_ok());
                }
                Err(fault) => {
                    open = Some(fault);
                    left.push((of, pending));
                }
            }
        }
        *of_tasks = left;
        open.map_or(Ok(given), Err)
    }

    /// The same, waiting until a task asks something that has no answer yet.
    pub(super) async fn questions_of(&self, task: &str, questions: &mut Questions) -> Fault {
        loop {
            let asked = self.asked.notified();
            tokio::pin!(asked);
            // From here on, no question is missed.
            asked.as_mut().enable();
            if let Err(fault) = self.open_question_of(task, questions) {
                return fault;
            }
            asked.await;
        }
    }

    /// Forgets what a task has asked.
    pub(super) fn task_is_over(&self, task: &str) {
        let mut of_tasks = self.of_tasks.lock().unwrap_or_else(PoisonError::into_inner);
        of_tasks.retain(|(of, _)| of != task);
    }
}

fn whose(call: &InFlight) -> Option<Whose> {
    match (&call.task, &call.questions) {
        (Some(task), _) => Some(Whose::Task(task.clone())),
        (None, Some(questions)) => Some(Whose::Call(questions.clone())),
        (None, None) => None,
    }
}

/// One request that is under way; forgotten when dropped.
struct Listening {
    calls: Arc<Mutex<HashMap<String, InFlight>>>,
    over: Arc<Notify>,
    token: String,
    reports: watch::Receiver<Option<ProgressReport>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.remove(&self.token);
        drop(calls);
        self.over.notify_waiters();
    }
}

impl ClientHandler for Client {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let message = progress.message.map(|message| {
            let shown = message.chars().filter(|c| !c.is_control());
            shown.take(MESSAGE_CHARS_MAX).collect()
        });
        let report = ProgressReport {
            progress: progress.progress,
            total: progress.total,
            message,
        };
        let token = progress.progress_token.0.to_string();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = calls.get(&token) {
            call.reports.send_replace(Some(report));
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != envelope::QUESTION {
            let method = request.method;
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
        }
        let (params, during) = envelope::question(request.params);
        let inquiry = inquiring::read(&params, &self.secrets)
            .map_err(|why| ErrorData::new(ErrorCode::INVALID_PARAMS, why, None))?;
        let answered = async {
            let whose = self.whose(inquiring::task(&params), during.as_ref());
            self.pass(whose.await?, inquiry)?.await.ok()
        };
        let answer = tokio::select! {
            answer = answered => answer,
            () = context.ct.cancelled() => None,
        };
        Ok(CustomResult(answer.unwrap_or_else(inquiring::nobody)))
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("mainspring", env!("CARGO_PKG_VERSION"));
        let mut offered = ClientCapabilities::default();
        let form = FormElicitationCapability::new().with_schema_validation(true);
        let asking = ElicitationCapability::new().with_form(form);
        offered.elicitation = Some(asking.with_url(UrlElicitationCapability::new()));
        ClientConfig::new(offered, us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// How long a request may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Without any report of progress.
    pub(super) idle: Duration,
    /// In total, whatever is reported.
    pub(super) total: Duration,
}

/// For whom the server may ask a person during a request.
#[derive(Debug)]
pub(super) enum Asking<'a> {
    /// For nobody.
    Nobody,
    /// For the call that the request makes.
    Call(&'a mut Questions),
    /// For the task that the request is about.
    Task(&'a str),
}

/// A request.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    pub(super) params: JsonObject,
    pub(super) meta: JsonObject,
    /// `None` if the caller limits it.
    pub(super) limits: Option<Limits>,
    /// Where progress is reported.
    pub(super) progress: &'a Progress,
    /// Whether the server may ask.
    pub(super) asking: Asking<'a>,
}

/// What is heard of a request.
enum Heard<A> {
    Answer(A),
    Progress,
    Question(Pending),
}

/// Makes a request, and returns its result as the server wrote it. When it takes too long, asks something that has no
/// answer yet, or the future is dropped, the server is told that it is not wanted any longer.
pub(super) async fn ask(service: &Service, mut ask: Ask<'_>) -> Result<Value, Fault> {
    let params = (!ask.params.is_empty()).then_some(Value::Object(ask.params));
    let request = ClientRequest::CustomRequest(CustomRequest::new(ask.method, params));
    let options =
        PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(ask.meta)));
    let handle = service.peer().send_request_with_option(request, options);
    let handle = handle.await.map_err(Fault::of)?;
    let (questions, mut asked) = mpsc::channel(QUESTIONS_MAX);
    let may_ask = match &ask.asking {
        Asking::Call(questions) => questions.reach_someone(),
        Asking::Nobody | Asking::Task(_) => false,
    };
    let call = InFlight {
        id: serde_json::to_value(&handle.id).unwrap_or_default(),
        reports: watch::channel(None).0,
        questions: may_ask.then_some(questions),
        task: match ask.asking {
            Asking::Task(task) => Some(task.to_owned()),
            Asking::Nobody | Asking::Call(_) => None,
        },
    };
    let token = handle.progress_token.0.to_string();
    let mut listening = service.service().listen(token, call);
    let mut abandoned = Abandoned {
        peer: handle.peer.clone(),
        id: Some(handle.id.clone()),
        why: "the call was stopped",
    };
    let mut answer = handle.rx;
    let reported = async {
        loop {
            let next = async {
                tokio::select! {
                    biased;
                    answer = &mut answer => Heard::Answer(answer),
                    Some(question) = asked.recv() => Heard::Question(question),
                    Ok(()) = listening.reports.changed() => Heard::Progress,
                }
            };
            let next = match ask.limits {
                Some(limits) => timeout(limits.idle, next).await.map_err(|_| limits.idle)?,
                None => next.await,
            };
            match next {
                Heard::Progress => {
                    if let Some(report) = listening.reports.borrow_and_update().clone() {
                        ask.progress.report(report);
                    }
                }
                Heard::Question(pending) => {
                    let Asking::Call(questions) = &mut ask.asking else {
                        continue;
                    };
                    match questions.answer(&pending.inquiry) {
                        // The server may have withdrawn it meanwhile.
                        Ok(reply) => drop(pending.answer.send(reply)),
                        Err(fault) => return Ok((Heard::Question(pending), Some(fault))),
                    }
                }
                heard @ Heard::Answer(_) => return Ok((heard, None)),
            }
        }
    };
    let answered = match ask.limits {
        Some(limits) => timeout(limits.total, reported)
            .await
            .unwrap_or(Err(limits.total)),
        None => reported.await,
    };
    match answered {
        Ok((Heard::Answer(Ok(Ok(result))), _)) => {
            abandoned.id = None;
            Ok(envelope::opened(result))
        }
        Ok((Heard::Answer(Ok(Err(error))), _)) => {
            abandoned.id = None;
            Err(Fault::of(error))
        }
        Ok((Heard::Question(pending), Some(fault))) => {
            // First of all that the call is not wanted any longer: what asks must not go on as if it had been refused.
            abandoned.why = "it is made again once its question is answered";
            abandoned.tell().await;
            // What it asks from here on has nobody to answer it.
            drop((pending, asked));
            if service.service().must_be_alone() {
                left_behind(service).await;
            }
            drop(listening);
            Err(fault)
        }
        Ok(_) => {
            abandoned.id = None;
            Err(Fault::closed())
        }
        Err(limit) => {
            abandoned.why = "the time limit is over";
            Err(Fault::Silent(limit))
        }
    }
}

/// Waits until the server is done with an abandoned call, so that what it still asks for it is not taken for a question
/// of the next one: servers that do one thing after the other answer a ping behind it, and others have stopped by then.
async fn left_behind(service: &Service) {
    let ping = ClientRequest::PingRequest(PingRequest::default());
    let _ = timeout(LEAVE_TIMEOUT, service.peer().send_request(ping)).await;
}

/// A request whose answer is not waited for any longer: dropping it tells the server.
struct Abandoned {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
    why: &'static str,
}

impl Abandoned {
    fn notification(&mut self) -> Option<ClientNotification> {
        let id = self.id.take()?;
        let params = CancelledNotificationParam::new(Some(id), Some(self.why.to_owned()));
        Some(ClientNotification::CancelledNotification(
            CancelledNotification::new(params),
        ))
    }

    /// Tells the server now.
    async fn tell(&mut self) {
        if let Some(notification) = self.notification() {
            // A connection that is gone or stuck has no request left to cancel.
            let _ = timeout(TELL_TIMEOUT, self.peer.send_notification(notification)).await;
        }
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let Some(notification) = self.notification() else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            // A connection that is gone has no request left to cancel.
            let _ = peer.send_notification(notification).await;
        });
    }
}

/// The elements of a list, from all of its pages: at most `elements_max`, and no page twice.
pub(super) async fn list(
    service: &Service,
    method: &'static str,
    member: &'static str,
    elements_max: usize,
) -> Result<Vec<Value>, Fault> {
    let mut elements = Vec::new();
    let mut seen = BTreeSet::new();
    let mut cursor: Option<String> = None;
    let unheard = Progress::default();
    for _ in 0..PAGES_MAX {
        let mut params = JsonObject::new();
        if let Some(cursor) = cursor.take() {
            params.insert("cursor".to_owned(), Value::from(cursor));
        }
        let page = ask(
            service,
            Ask {
                method,
                params,
                meta: JsonObject::new(),
                limits: None,
                progress: &unheard,
                asking: Asking::Nobody,
            },
        );
        let (found, next) = listing::page(&mut page.await?, member);
        elements.extend(found);
        match next {
            // A cursor that was given before would lead in a circle.
            Some(next) if elements.len() < elements_max && seen.insert(next.clone()) => {
                cursor = Some(next);
            }
            _ => break,
        }
    }
    elements.truncate(elements_max);
    Ok(elements)
}
