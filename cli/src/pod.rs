//! Reports to Kubernetes how many sends this pod has in flight, so that idle pods are removed
//! first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::time::Clock;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Certificate, Client, Url};
use serde_json::json;
use tokio::sync::watch;

use crate::config::Config;
use crate::failure::{Failure, causes, usage_text};

/// Among the pods of a deployment, those with the lowest value are removed first.
const ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The shortest time between two updates: each one is a write to the cluster's own database.
const PAUSE: Duration = Duration::from_secs(5);

/// The pause after a failed update.
const LATER: Duration = Duration::from_mins(1);

/// How long the API server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// This pod, as the API server knows it.
#[derive(Debug)]
pub(crate) struct Pod {
    client: Client,
    url: Url,
    /// Read for every update, because it is rotated before it expires.
    token: PathBuf,
    /// The pause between two updates.
    pause: Duration,
}

impl Pod {
    /// The pod that this worker runs in; `None` unless the settings name an API server.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(api) = &config.worker.kubernetes_api else {
            return Ok(None);
        };
        let account = Path::new(&config.worker.kubernetes_account);
        // The default process name is made of host and process id, which is not a pod's name.
        let Some(name) = config.name.clone() else {
            return Err(usage_text(
                "worker.kubernetes_api needs the name of the pod",
                "set MAINSPRING_NAME to it, by the downward API (the chart's deletionCost does)",
            ));
        };
        let pod = Self::new(api, account, &name).map_err(|fault| {
            let advice = "mount the pod's account there (the chart's deletionCost does), or leave \
                          worker.kubernetes_api out";
            usage_text(format!("worker.kubernetes_api: {fault}"), advice)
        });
        pod.map(Some)
    }

    fn new(api: &str, account: &Path, name: &str) -> Result<Self, String> {
        let read = |file: &str| {
            let path = account.join(file);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let namespace = read("namespace")?;
        let path = format!("/api/v1/namespaces/{}/pods/{name}", namespace.trim());
        let url = Url::parse(api).and_then(|api| api.join(&path));
        let url = url.map_err(|error| format!("{api:?} is no address: {error}"))?;
        let client = Client::builder()
            .timeout(PATIENCE)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        let client = if url.scheme() == "https" {
            // Trust the cluster's own certificate authority and no other.
            let authorities = Certificate::from_pem_bundle(read("ca.crt")?.as_bytes());
            client.tls_certs_only(authorities.map_err(|error| causes(&error))?)
        } else {
            client
        };
        Ok(Self {
            client: client.build().map_err(|error| causes(&error))?,
            url,
            token: account.join("token"),
            pause: PAUSE,
        })
    }

    /// Reports the number of sends in flight whenever it changes, until the sender of `load` is
    /// dropped.
    pub(crate) async fn keep_told(self, mut load: watch::Receiver<u32>, clock: Arc<dyn Clock>) {
        let mut failing = false;
        loop {
            let count = *load.borrow_and_update();
            let told = self.tell(count).await;
            match &told {
                Ok(()) => tracing::debug!(count, "updated the pod deletion cost"),
                Err(error) if failing => {
                    tracing::debug!(error, "could not update the pod deletion cost");
                }
                Err(error) => {
                    tracing::warn!(
                        error,
                        "could not update the pod deletion cost; busy pods may be removed first"
                    );
                }
            }
            failing = told.is_err();
            clock.sleep(if failing { LATER } else { self.pause }).await;
            if !failing && load.changed().await.is_err() {
                return;
            }
        }
    }

    async fn tell(&self, count: u32) -> Result<(), String> {
        let token = std::fs::read_to_string(&self.token).map_err(|error| error.to_string())?;
        let cost = json!({ "metadata": { "annotations": { ANNOTATION: count.to_string() } } });
        let request = self.client.patch(self.url.clone());
        let request = request
            .bearer_auth(token.trim())
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(cost.to_string());
        let answer = request.send().await.map_err(|error| causes(&error))?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(format!("the API server answers {}", answer.status()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::extract::{Request, State};
    use axum::http::StatusCode;
    use mainspring_runtime::SystemClock;
    use serde_json::Value;

    use super::*;

    type Seen = Arc<Mutex<Vec<(String, Value)>>>;

    async fn patched(
        State((seen, status)): State<(Seen, StatusCode)>,
        request: Request,
    ) -> StatusCode {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1_000).await.expect("a body");
        let header = |name: &str| head.headers[name].to_str().expect("text").to_owned();
        let line = format!(
            "{} {} {} {}",
            head.method,
            head.uri,
            header("authorization"),
            header("content-type")
        );
        let body = serde_json::from_slice(&body).expect("JSON");
        seen.lock().expect("no panic").push((line, body));
        status
    }

    /// An API server that gives this response, and a pod that reports to it.
    async fn server(status: StatusCode) -> (tempfile::TempDir, Pod, Seen) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let seen = Seen::default();
        let router = axum::Router::new()
            .fallback(patched)
            .with_state((seen.clone(), status));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let account = tempfile::tempdir().expect("a folder");
        std::fs::write(account.path().join("namespace"), "agents\n").expect("written");
        std::fs::write(account.path().join("token"), "a-token\n").expect("written");
        let pod = Pod::new(&url, account.path(), "w-1").expect("a pod");
        (account, pod, seen)
    }

    #[tokio::test]
    async fn the_number_of_sends_is_what_a_pod_costs() {
        let (_account, mut pod, seen) = server(StatusCode::OK).await;
        pod.pause = Duration::from_millis(300);
        let (load, counted) = watch::channel(0);
        let clock = Arc::new(SystemClock::new());
        let told = tokio::spawn(pod.keep_told(counted, clock));
        while seen.lock().expect("no panic").is_empty() {
            tokio::task::yield_now().await;
        }
        for count in 1..=3 {
            load.send_replace(count);
        }
        drop(load);
        told.await.expect("it ends with what is counted");
        let seen = seen.lock().expect("no panic");
        let (line, body) = &seen[0];
        assert_eq!(
            line,
            "PATCH /api/v1/namespaces/agents/pods/w-1 Bearer a-token application/merge-patch+json"
        );
        assert_eq!(body["metadata"]["annotations"][ANNOTATION], "0");
        assert_eq!(
            seen.last().expect("one").1["metadata"]["annotations"][ANNOTATION],
            "3"
        );
        // However often it changes, it is reported only once per pause.
        assert_eq!(seen.len(), 2, "{seen:?}");
    }

    #[tokio::test]
    async fn a_refusal_is_said_in_words() {
        let (_account, pod, _) = server(StatusCode::FORBIDDEN).await;
        let fault = pod.tell(1).await.expect_err("it is refused");
        assert_eq!(fault, "the API server answers 403 Forbidden");
    }

    #[test]
    fn an_account_that_is_not_mounted_is_named() {
        let none = tempfile::tempdir().expect("a folder");
        let fault = Pod::new("https://k", none.path(), "w-1").expect_err("nothing is there");
        assert!(fault.contains("namespace"), "{fault}");
        std::fs::write(none.path().join("namespace"), "agents").expect("written");
        let fault = Pod::new("nowhere", none.path(), "w-1").expect_err("no address");
        assert!(fault.contains("nowhere"), "{fault}");
    }
}
