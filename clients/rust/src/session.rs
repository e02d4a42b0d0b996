//! A conversation.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::call::segment;
use crate::client::Client;
use crate::error::Error;
use crate::events::SendStream;
use crate::pages::Pages;
use crate::question::Question;
use crate::send::{SendBuilder, text_of};
use crate::span::Span;
use crate::tool::Tool;
use crate::types::{
    AcceptedSend, Agent, AgentSpec, DeclaredTool, Entry, ForkBody, Input, NewSessionBody,
    NewTokenBody, Scope, SendAnywhereBody, SendBody, SendSession, SessionView,
};

/// A conversation. It is made with its first send, unless it has an id. Clones are the same session.
///
/// `agent`, `tools`, `variables`, `metadata` and `key` say what a new one is like; of one that exists they change nothing.
#[derive(Debug, Clone)]
pub struct Session {
    client: Client,
    new: NewSessionBody,
    fault: Option<String>,
    /// Locked while it is made.
    id: Arc<Mutex<Option<String>>>,
}

impl Session {
    pub(crate) fn new(client: Client, id: Option<String>) -> Self {
        Self {
            client,
            new: NewSessionBody::default(),
            fault: None,
            id: Arc::new(Mutex::new(id)),
        }
    }

    /// The agent: a published one (`NAME`, `NAME@VERSION`, `NAME@ALIAS`), or an [`AgentSpec`].
    #[must_use]
    pub fn agent(mut self, agent: impl Into<Agent>) -> Self {
        self.new.agent = Some(agent.into());
        self
    }

    /// Tools of this process, which are added to those of the agent. A published agent has the tools that it was published
    /// with: add their [`declaration`](Tool::declaration) there.
    #[must_use]
    pub fn tools<'a>(mut self, tools: impl IntoIterator<Item = &'a Tool>) -> Self {
        let mut spec = match self.new.agent.take() {
            None => AgentSpec::default(),
            Some(Agent::AgentSpec(spec)) => *spec,
            Some(other) => {
                self.fault =
                    Some("a published agent has the tools that it was published with".to_owned());
                self.new.agent = Some(other);
                return self;
            }
        };
        let declared = tools
            .into_iter()
            .map(|tool| DeclaredTool::from(tool.declaration()).into());
        spec.tools.get_or_insert_default().extend(declared);
        self.new.agent = Some(spec.into());
        self
    }

    /// Variables of the agent's prompts.
    #[must_use]
    pub fn variables(mut self, variables: Map<String, Value>) -> Self {
        self.new.variables = Some(variables);
        self
    }

    /// What the caller wants to find it by.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.new.metadata = Some(metadata);
        self
    }

    /// The caller's own name for it: the one session that has it, made if there is none.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.new.key = Some(key.into());
        self
    }

    /// A message, whatever the session does at the moment: await it to send it.
    pub fn send(&self, input: impl Into<Input>) -> SendBuilder<String> {
        SendBuilder::new(self.clone(), input.into())
    }

    /// Its id: it is made if it has none.
    pub async fn open(&self) -> Result<String, Error> {
        let mut id = self.id.lock().await;
        if let Some(id) = &*id {
            return Ok(id.clone());
        }
        self.check()?;
        let made = self.client.api().create_session(&self.new, None).await?;
        *id = Some(made.id.clone());
        Ok(made.id)
    }

    fn check(&self) -> Result<(), Error> {
        match &self.fault {
            Some(fault) => Err(Error::Setup(fault.clone())),
            None => Ok(()),
        }
    }

    /// Accepts a message, with the session in the same request if it is new.
    pub(crate) async fn accept(
        &self,
        body: SendBody,
        key: Option<&str>,
    ) -> Result<AcceptedSend, Error> {
        let api = self.client.api();
        if self.new.key.is_none() {
            let mut id = self.id.lock().await;
            if id.is_none() {
                self.check()?;
                let new = SendAnywhereBody {
                    input: body.input,
                    options: body.options,
                    session: Some(self.as_part()),
                    session_id: None,
                };
                let made = api
                    .create_send(&new, &crate::api::CreateSendQuery::default(), key)
                    .await?;
                *id = Some(made.send_view.session_id.clone());
                return Ok(made);
            }
        }
        let id = self.open().await?;
        let query = crate::api::CreateSendInSessionQuery::default();
        api.create_send_in_session(&id, &body, &query, key).await
    }

    fn as_part(&self) -> SendSession {
        SendSession {
            agent: self.new.agent.clone(),
            metadata: self.new.metadata.clone(),
            variables: self.new.variables.clone(),
            session_id: None,
        }
    }

    /// Events of all of its sends, until it is dropped.
    pub async fn stream(&self, after: Option<&str>) -> Result<SendStream<String>, Error> {
        let path = format!("/v1/sessions/{}/events", segment(&self.open().await?));
        Ok(SendStream::new(
            self.client.caller(),
            path,
            after,
            false,
            text_of,
        ))
    }

    /// Where it stands.
    pub async fn get(&self) -> Result<SessionView, Error> {
        self.client.api().get_session(&self.open().await?).await
    }

    /// A copy of it, up to the message with this number.
    pub async fn fork(&self, seq: Option<u64>) -> Result<Self, Error> {
        let body = ForkBody {
            seq,
            ..ForkBody::default()
        };
        let made = self
            .client
            .api()
            .fork_session(&self.open().await?, &body, None)
            .await?;
        Ok(self.client.session_by_id(made.id))
    }

    /// Its transcript.
    pub async fn messages(&self) -> Result<Pages<Entry>, Error> {
        let query = crate::api::ListMessagesQuery::default();
        Ok(self.client.api().list_messages(&self.open().await?, &query))
    }

    /// What persons are asked by it and by the sessions below it.
    pub async fn questions(&self) -> Result<Vec<Question>, Error> {
        self.client.questions_of(&self.open().await?).await
    }

    /// A token with which a page uses this session, and nothing else, for a while. Each call makes another one.
    pub async fn token(&self, scopes: &[Scope], ttl: Option<Span>) -> Result<String, Error> {
        let body = NewTokenBody {
            session_id: self.open().await?,
            scopes: Some(scopes.to_vec()),
            ttl,
        };
        Ok(self.client.api().create_token(&body).await?.token)
    }

    /// Deletes it with everything below it.
    pub async fn delete(&self) -> Result<(), Error> {
        self.client.api().delete_session(&self.open().await?).await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}
