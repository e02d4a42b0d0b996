//! What a request may do whose API key is bound to a part of its tenant, or does not define agents.

use mainspring_shared::agent::{AgentChange, AgentName, AgentSpec, SendOptions};
use mainspring_shared::id::SessionId;
use mainspring_shared::session::{METADATA_TOO_LONG, SessionRecord, has_room};
use mainspring_shared::store::{IdempotencyKey, NewSession};
use mainspring_shared::tenant::{Binding, Outside, Right};
use serde_json::{Map, Value};

use super::Resolver;
use crate::error::Error;

/// Refuses a published agent that the key of a request is not bound to, whether the agent exists or
/// not.
pub fn admit_agent(binding: Option<&Binding>, name: &AgentName) -> Result<(), Error> {
    if binding.is_none_or(|binding| binding.has_agent(name)) {
        Ok(())
    } else {
        Err(Error::outside(&Outside::Agent))
    }
}

impl Resolver<'_> {
    /// Fails for a session outside the binding as if the session did not exist.
    pub fn see(&self, session: &SessionRecord) -> Result<(), Error> {
        let inside = self
            .allowed
            .binding
            .is_none_or(|binding| binding.holds(session));
        inside.then_some(()).ok_or_else(Error::session_not_found)
    }

    /// Adds the metadata that the binding requires of a session, before its agent is bound to the
    /// metadata. `at` points to the object that contains the metadata; fails if the additions do
    /// not fit.
    pub fn fill(&self, metadata: &mut Map<String, Value>, at: &str) -> Result<(), Error> {
        let filled = self.within(|binding| binding.fill(metadata))?;
        if filled.is_none() || has_room(metadata) {
            Ok(())
        } else {
            Err(Error::invalid(format!("{at}/metadata"), METADATA_TOO_LONG))
        }
    }

    /// Refuses a session that would lie outside the binding.
    pub fn admit(&self, session: &NewSession) -> Result<(), Error> {
        self.admit_as(&session.agent, &session.metadata, session.key.session)
    }

    /// Like `admit`, for a session created by a request with this idempotency key. If the
    /// key was used before, no session is created, and its agent may be gone by now.
    pub async fn admit_new(
        &self,
        agent: &AgentSpec,
        metadata: &Map<String, Value>,
        session: SessionId,
        key: Option<&IdempotencyKey>,
    ) -> Result<(), Error> {
        match self.admit_as(agent, metadata, session) {
            Err(_) if self.is_known(key).await? => Ok(()),
            admitted => admitted,
        }
    }

    /// Like `admit`, for what a session is to become.
    pub fn admit_as(
        &self,
        agent: &AgentSpec,
        metadata: &Map<String, Value>,
        session: SessionId,
    ) -> Result<(), Error> {
        self.within(|binding| binding.judge(agent, metadata, session))?;
        Ok(())
    }

    /// Refuses the memory of an agent that is used for one send only, if it lies outside the
    /// binding. The namespace is fixed as it was checked, because the metadata that it is built
    /// from may change before the send begins.
    pub(super) fn admit_memory(
        &self,
        agent: &mut AgentSpec,
        metadata: &Map<String, Value>,
        session: SessionId,
    ) -> Result<(), Error> {
        let judged = self.within(|binding| binding.judge_memory(agent, metadata, session))?;
        if let (Some(memory), Some(namespace)) = (&mut agent.memory, judged.flatten()) {
            memory.namespace = namespace.to_string();
        }
        Ok(())
    }

    /// Refuses an agent that a request defines itself, unless its key allows that.
    pub(super) fn admit_own(&self) -> Result<(), Error> {
        if self.allowed.binding.is_some_and(Binding::names_agents) {
            return Err(Error::outside(&Outside::Agent));
        }
        if self.allowed.defines {
            Ok(())
        } else {
            Err(Error::lacking(Right::Define))
        }
    }

    /// Refuses options that would turn the agent into another one, unless the key allows to define
    /// agents. A bound key may choose how its agents are called, but not what they are.
    pub(super) fn admit_options(&self, options: &SendOptions) -> Result<(), Error> {
        let names_agents = self.allowed.binding.is_some_and(Binding::names_agents);
        let change = options.change();
        if names_agents && change == AgentChange::Replaced {
            return Err(Error::outside(&Outside::Agent));
        }
        if !self.allowed.defines && change > AgentChange::None {
            return Err(Error::lacking(Right::Define));
        }
        Ok(())
    }

    /// Applies the binding, if there is one. Refuses what lies outside it.
    fn within<T>(
        &self,
        judge: impl FnOnce(&Binding) -> Result<T, Outside>,
    ) -> Result<Option<T>, Error> {
        let judged = self.allowed.binding.map(judge).transpose();
        judged.map_err(|why| Error::outside(&why))
    }
}
