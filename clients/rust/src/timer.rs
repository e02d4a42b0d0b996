//! Schedules.

use serde_json::Value;

use crate::api::ListOccurrencesQuery;
use crate::client::Client;
use crate::error::Error;
use crate::flow::Workflow;
use crate::pages::Pages;
use crate::session::Session;
use crate::span::Span;
use crate::types::{
    CatchUp, FireTimerBody, Input, OccurrenceView, RunBody, SendOptions, TimerBody,
    TimerChangeBody, TimerView,
};

/// A schedule that does nothing yet.
#[derive(Debug)]
#[must_use = "a timer is made by send or run"]
pub struct NewTimer {
    client: Client,
    body: TimerBody,
    key: Option<String>,
}

impl NewTimer {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            body: TimerBody::default(),
            key: None,
        }
    }

    /// Once, at this time (RFC 3339).
    pub fn at(mut self, at: impl Into<String>) -> Self {
        self.body.at = Some(at.into());
        self
    }

    /// Once, after so long.
    pub fn after(mut self, after: impl Into<Span>) -> Self {
        self.body.after = Some(after.into());
        self
    }

    /// Again and again.
    pub fn every(mut self, every: impl Into<Span>) -> Self {
        self.body.every = Some(every.into());
        self
    }

    /// As a cron expression says, by the clocks of this time zone.
    pub fn cron(mut self, cron: impl Into<String>, timezone: impl Into<String>) -> Self {
        self.body.cron = Some(cron.into());
        self.body.timezone = Some(timezone.into());
        self
    }

    /// What becomes of occurrences that were missed.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.body.catch_up = Some(catch_up);
        self
    }

    /// The same key always stands for the same timer.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sends this each time.
    pub async fn send(
        mut self,
        session: &Session,
        input: impl Into<Input>,
        options: SendOptions,
    ) -> Result<TimerHandle, Error> {
        self.body.session_id = Some(session.open().await?);
        self.body.input = Some(input.into());
        self.body.options = (options != SendOptions::default()).then_some(options);
        self.made().await
    }

    /// Starts a run of this each time.
    pub async fn run(
        mut self,
        workflow: &Workflow,
        input: impl Into<Value>,
    ) -> Result<TimerHandle, Error> {
        self.body.run = Some(RunBody {
            spec: workflow.spec().into(),
            input: Some(input.into()),
            options: None,
        });
        self.made().await
    }

    async fn made(self) -> Result<TimerHandle, Error> {
        let view = self
            .client
            .api()
            .create_timer(&self.body, self.key.as_deref())
            .await?;
        Ok(TimerHandle::new(self.client, view.id))
    }
}

/// A schedule. It is an id, and may be made anew from it anywhere: [`Client::timer_by_id`].
#[derive(Debug, Clone)]
pub struct TimerHandle {
    client: Client,
    id: String,
}

impl TimerHandle {
    pub(crate) fn new(client: Client, id: String) -> Self {
        Self { client, id }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it stands, and when it is next due.
    pub async fn get(&self) -> Result<TimerView, Error> {
        self.client.api().get_timer(&self.id).await
    }

    /// Nothing is due until it is resumed.
    pub async fn pause(&self) -> Result<TimerView, Error> {
        self.client.api().pause_timer(&self.id).await
    }

    /// Goes on with the next occurrence.
    pub async fn resume(&self) -> Result<TimerView, Error> {
        self.client.api().resume_timer(&self.id).await
    }

    /// Changes what it says and when it is due; what is absent stays as it is.
    pub async fn change(&self, change: &TimerChangeBody) -> Result<TimerView, Error> {
        self.client.api().change_timer(&self.id, change).await
    }

    /// Fires its next occurrence now, once, however often the request has to be made. The schedule of a timer that recurs
    /// goes on as it was.
    pub async fn fire(&self) -> Result<TimerView, Error> {
        let n = self.get().await?.occurrences + 1;
        let body = FireTimerBody { n };
        self.client.api().fire_timer(&self.id, &body).await
    }

    /// Ends it; it can still be read.
    pub async fn cancel(&self) -> Result<TimerView, Error> {
        self.client.api().cancel_timer(&self.id).await
    }

    /// What became of each time that it was due.
    pub fn occurrences(&self) -> Pages<OccurrenceView> {
        self.client
            .api()
            .list_occurrences(&self.id, &ListOccurrencesQuery::default())
    }
}
