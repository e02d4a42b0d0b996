//! The agent that a send names for itself.

use mainspring_shared::agent::prompt::bind;
use mainspring_shared::agent::{AgentQuery, AgentSpec, SendOptions};
use mainspring_shared::id::{SessionId, SessionKey};
use mainspring_shared::store::IdempotencyKey;
use serde_json::{Map, Value};

use super::{Resolver, invalid, is_about_agents};
use crate::error::{Error, FieldError};
use crate::services::skills;

/// The options of a send as given in a request, with the agent still a name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OptionsAsk {
    /// All other options.
    pub options: SendOptions,
    /// The agent, if one is named.
    pub agent: Option<AgentAsk>,
}

/// A published agent for one send, with the values of its variables.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentAsk {
    /// A pointer to the object that has `agent` and `variables` as members.
    pub at: String,
    pub agent: AgentQuery,
    pub variables: Map<String, Value>,
}

impl Resolver<'_> {
    /// The options of a send to an existing session. Nothing is read unless they name an agent or
    /// the request's key is bound. A session outside the binding counts as missing.
    pub async fn options_in(
        &mut self,
        ask: OptionsAsk,
        session: SessionKey,
        key: Option<&IdempotencyKey>,
    ) -> Result<SendOptions, Error> {
        if ask.agent.is_none() && self.allowed.binding.is_none() {
            self.admit_options(&ask.options)?;
            return Ok(ask.options);
        }
        match self.app.store.get_session(session).await? {
            Some(found) => {
                self.see(&found)?;
                self.options_with(ask, session.session, &found.agent, &found.metadata, key)
                    .await
            }
            None if self.is_known(key).await? => Ok(ask.options),
            None => Err(Error::session_not_found()),
        }
    }

    /// Like `options_in`, if the request's path names the session, which has been checked
    /// already.
    pub async fn options_inside(
        &mut self,
        ask: OptionsAsk,
        session: SessionKey,
        key: Option<&IdempotencyKey>,
    ) -> Result<SendOptions, Error> {
        if ask.agent.is_some() {
            return self.options_in(ask, session, key).await;
        }
        self.admit_options(&ask.options)?;
        Ok(ask.options)
    }

    /// The options of a send in a session with this agent and this metadata. Fails with
    /// `agent.not_found`, or with `request.invalid` if the agent cannot run there. A request whose
    /// idempotency key was used before will store nothing, so it does not fail for these reasons.
    pub async fn options_with(
        &mut self,
        ask: OptionsAsk,
        id: SessionId,
        session: &AgentSpec,
        metadata: &Map<String, Value>,
        key: Option<&IdempotencyKey>,
    ) -> Result<SendOptions, Error> {
        let OptionsAsk { mut options, agent } = ask;
        self.admit_options(&options)?;
        let Some(ask) = agent else {
            return Ok(options);
        };
        match self.for_send(ask, session, metadata).await {
            Ok(mut agent) => {
                self.admit_memory(&mut agent, metadata, id)?;
                // The agent serves only this send, so its budget becomes a budget of the send.
                options.budget = match (options.budget, agent.budget.take()) {
                    (Some(own), Some(agents)) => Some(own.and(agents)),
                    (own, agents) => own.or(agents),
                };
                options.agent = Some(Box::new(agent));
                Ok(options)
            }
            Err(error) if is_about_agents(error.code()) && self.is_known(key).await? => Ok(options),
            Err(error) => Err(error),
        }
    }

    async fn for_send(
        &mut self,
        ask: AgentAsk,
        session: &AgentSpec,
        metadata: &Map<String, Value>,
    ) -> Result<AgentSpec, Error> {
        let AgentAsk {
            at,
            agent: query,
            variables,
        } = ask;
        let pointer = format!("{at}/agent");
        let version = self.find(&query).await;
        let version = version.map_err(|error| error.at(&pointer))?;
        let reference = version.reference();
        let elsewhere = version.spec.own_pool().filter(|own| *own != session.pool());
        if let Some(own) = elsewhere {
            let detail = format!(
                "belongs to the pool {own:?}, and the session to {:?}",
                session.pool()
            );
            return Err(Error::invalid_members(vec![FieldError { pointer, detail }]));
        }
        let bound = bind(version.spec, Some(reference), variables, metadata);
        let mut agent = bound.map_err(|faults| invalid(&at, faults))?;
        skills::pin(self.app.store.as_ref(), self.tenant, &mut agent, &pointer).await?;
        Ok(agent)
    }
}
