//! Workflows that run.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{CancelRunQuery, CreateRunQuery, ListNodesQuery, RetryRunQuery};
use crate::call::segment;
use crate::client::Client;
use crate::clock;
use crate::error::Error;
use crate::events::RunStream;
use crate::flow::Workflow;
use crate::pages::Pages;
use crate::question::Question;
use crate::session::Session;
use crate::types::{
    CancelRunBody, NewRunBody, NodeState, NodeView, RetryRunBody, RunOptions, RunStatus, RunView,
    Spec,
};

/// The result of a completed run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunAnswer {
    /// Its text.
    pub text: String,
    /// Its value; null if it has none.
    pub payload: Value,
    /// The whole run.
    pub run: RunView,
}

impl RunAnswer {
    /// The value, or the text if there is none, as `T`.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let value = match &self.payload {
            Value::Null => self.text.clone().into(),
            payload => payload.clone(),
        };
        serde_json::from_value(value)
            .map_err(|error| Error::Mismatch(format!("the result of {}: {error}", self.run.id)))
    }
}

/// A workflow that is yet to be started: await it.
#[derive(Debug)]
#[must_use = "a run is started when this is awaited"]
pub struct NewRun {
    client: Client,
    body: NewRunBody,
    session: Option<Session>,
    key: Option<String>,
}

impl NewRun {
    pub(crate) fn new(client: Client, workflow: &Workflow) -> Self {
        let spec: Spec = workflow.spec().into();
        Self {
            client,
            body: NewRunBody {
                spec,
                input: None,
                options: None,
                session_id: None,
            },
            session: None,
            key: None,
        }
    }

    /// What it is started with.
    pub fn input(mut self, input: impl Into<Value>) -> Self {
        self.body.input = Some(input.into());
        self
    }

    /// Its options.
    pub fn options(mut self, options: RunOptions) -> Self {
        self.body.options = Some(options);
        self
    }

    /// A session that is told its end.
    pub fn tell(mut self, session: &Session) -> Self {
        self.session = Some(session.clone());
        self
    }

    /// The same key always stands for the same run.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl IntoFuture for NewRun {
    type Output = Result<RunHandle, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            if let Some(session) = &self.session {
                self.body.session_id = Some(session.open().await?);
            }
            let api = self.client.api();
            let made = api
                .create_run(&self.body, &CreateRunQuery::default(), self.key.as_deref())
                .await?;
            Ok(RunHandle::new(self.client, made.id))
        })
    }
}

/// A run. It is an id, and may be made anew from it anywhere: [`Client::run_by_id`].
#[derive(Debug, Clone)]
pub struct RunHandle {
    client: Client,
    id: String,
}

impl RunHandle {
    pub(crate) fn new(client: Client, id: String) -> Self {
        Self { client, id }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it stands.
    pub async fn get(&self) -> Result<RunView, Error> {
        self.client
            .api()
            .get_run(&self.id, &crate::api::GetRunQuery::default())
            .await
    }

    /// Its result: an error if it failed or was cancelled. Outlasts restarts of the server.
    pub async fn wait(&self) -> Result<RunAnswer, Error> {
        self.wait_until(None).await
    }

    /// The same, for so long at most: then [`Error::Timeout`], which leaves the run alone.
    pub async fn wait_at_most(&self, limit: Duration) -> Result<RunAnswer, Error> {
        self.wait_until(clock::now().checked_add(limit)).await
    }

    async fn wait_until(&self, until: Option<Instant>) -> Result<RunAnswer, Error> {
        let path = format!("/v1/runs/{}", segment(&self.id));
        loop {
            let run: Box<RunView> = self.client.wait_for(&path, until).await?;
            match run.status {
                RunStatus::Completed => {
                    let result = run.result.clone().unwrap_or_default();
                    return Ok(RunAnswer {
                        text: result["text"].as_str().unwrap_or_default().to_owned(),
                        payload: result["payload"].clone(),
                        run: *run,
                    });
                }
                RunStatus::Failed => return Err(Error::RunFailed(run)),
                RunStatus::Cancelled => return Err(Error::RunCancelled(run)),
                _ => {}
            }
            if until.is_some_and(|until| clock::now() >= until) {
                return Err(Error::Timeout(self.id.clone()));
            }
        }
    }

    /// Its events from the beginning, or after the cursor of another stream.
    pub fn stream(&self, after: Option<&str>) -> RunStream {
        let path = format!("/v1/runs/{}/events", segment(&self.id));
        RunStream::new(self.client.caller(), path, after)
    }

    /// Its nodes in the order in which they were reached.
    pub fn nodes(&self) -> Pages<NodeView> {
        self.client
            .api()
            .list_nodes(&self.id, &ListNodesQuery::default())
    }

    /// What persons are asked by its leaves.
    pub async fn questions(&self) -> Result<Vec<Question>, Error> {
        let nodes = self.nodes().all().await?;
        let waiting = nodes
            .into_iter()
            .filter(|node| node.state == NodeState::Waiting);
        let mut sessions: Vec<String> = waiting.filter_map(|node| node.session_id).collect();
        sessions.sort();
        sessions.dedup();
        let mut questions = Vec::new();
        for session in sessions {
            questions.extend(self.client.questions_of(&session).await?);
        }
        Ok(questions)
    }

    /// Cancels it with everything below it, and returns how it ended.
    pub async fn cancel(&self, reason: Option<&str>) -> Result<RunView, Error> {
        let body = CancelRunBody {
            reason: reason.map(str::to_owned),
        };
        let query = CancelRunQuery {
            wait: Some(Duration::from_secs(30).into()),
        };
        self.client.api().cancel_run(&self.id, &body, &query).await
    }

    /// Lets it start nothing more until it is resumed. What runs goes on to its end.
    pub async fn pause(&self) -> Result<RunView, Error> {
        self.client.api().pause_run(&self.id).await
    }

    /// Lets it go on after a pause.
    pub async fn resume(&self) -> Result<RunView, Error> {
        self.client.api().resume_run(&self.id).await
    }

    /// Runs again what did not succeed.
    pub async fn retry(&self) -> Result<RunView, Error> {
        let api = self.client.api();
        api.retry_run(
            &self.id,
            &RetryRunBody::default(),
            &RetryRunQuery::default(),
        )
        .await
    }
}
