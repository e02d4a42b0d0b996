//! Our side of the protocol: what a server may tell us, and requests to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_worker::tool::{Progress, ProgressReport};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientNotification, ClientRequest, CustomRequest, Implementation, JsonObject, MetaObject,
    ProgressNotificationParam, ProtocolVersion, RequestId, RequestMetaObject,
};
use rmcp::service::{NotificationContext, Peer, PeerRequestOptions, RunningService};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::envelope;
use super::fault::Fault;
use super::listing;

/// Limit on the pages of a listing; more elements than any model can tell apart.
const PAGES_MAX: usize = 100;

/// Characters of a progress message that are shown.
const MESSAGE_CHARS_MAX: usize = 500;

/// An open connection as the library has it.
pub(super) type Service = RunningService<RoleClient, Client>;

type Reports = watch::Sender<Option<ProgressReport>>;

/// Offers servers nothing, and listens for changes of their tools and the progress of calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    changes: Arc<AtomicU64>,
    /// The calls in flight by their progress tokens.
    calls: Arc<Mutex<HashMap<String, Reports>>>,
}

impl Client {
    /// How many changes of its tools the server has reported.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn listen(&self, token: String) -> Listening {
        let (sender, reports) = watch::channel(None);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.insert(token.clone(), sender);
        Listening {
            calls: self.calls.clone(),
            token,
            reports,
        }
    }
}

/// The progress of one request; forgotten when dropped.
struct Listening {
    calls: Arc<Mutex<HashMap<String, Reports>>>,
    token: String,
    reports: watch::Receiver<Option<ProgressReport>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.remove(&self.token);
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
            call.send_replace(Some(report));
        }
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("mainspring", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
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
}

/// Makes a request, and returns its result as the server wrote it. When it takes too long or the
/// future is dropped, the server is told that it is not wanted any longer.
pub(super) async fn ask(service: &Service, ask: Ask<'_>) -> Result<Value, Fault> {
    let params = (!ask.params.is_empty()).then_some(Value::Object(ask.params));
    let request = ClientRequest::CustomRequest(CustomRequest::new(ask.method, params));
    let options =
        PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(ask.meta)));
    let handle = service.peer().send_request_with_option(request, options);
    let handle = handle.await.map_err(Fault::of)?;
    let mut listening = service
        .service()
        .listen(handle.progress_token.0.to_string());
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
                    answer = &mut answer => Some(answer),
                    Ok(()) = listening.reports.changed() => None,
                }
            };
            let next = match ask.limits {
                Some(limits) => timeout(limits.idle, next).await.map_err(|_| limits.idle)?,
                None => next.await,
            };
            if next.is_some() {
                return Ok(next);
            }
            if let Some(report) = listening.reports.borrow_and_update().clone() {
                ask.progress.report(report);
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
        Ok(Some(Ok(Ok(result)))) => {
            abandoned.id = None;
            Ok(envelope::opened(result))
        }
        Ok(Some(Ok(Err(error)))) => {
            abandoned.id = None;
            Err(Fault::of(error))
        }
        Ok(Some(Err(_)) | None) => {
            abandoned.id = None;
            Err(Fault::closed())
        }
        Err(limit) => {
            abandoned.why = "the time limit is over";
            Err(Fault::Silent(limit))
        }
    }
}

/// A request whose answer is not waited for any longer: dropping it tells the server.
struct Abandoned {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
    why: &'static str,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let params = CancelledNotificationParam::new(Some(id), Some(self.why.to_owned()));
        let notification = CancelledNotification::new(params);
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let notification = ClientNotification::CancelledNotification(notification);
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
    let mut seen = std::collections::BTreeSet::new();
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
