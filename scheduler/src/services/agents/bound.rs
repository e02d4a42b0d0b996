//! What a request may do whose key is bound to a part of its tenant.

use mainspring_shared::agent::{AgentName, AgentSpec, SendOptions};
use mainspring_shared::id::SessionId;
use mainspring_shared::session::{METADATA_TOO_LONG, SessionRecord, has_room};
use mainspring_shared::store::{IdempotencyKey, NewSession};
use mainspring_shared::tenant::{Binding, Outside};
use serde_json::{Map, Value};

use super::Resolver;
use crate::error::Error;

/// Refuses a published agent that the key of a request is not bound to, whether it exists or not.
pub fn admit_agent(binding: Option<&Binding>, name: &AgentName) -> Result<(), Error> {
    if binding.is_none_or(|binding| binding.has_agent(name)) {
        Ok(())
    } else {
        Err(Error::outside(&Outside::Agent))
    }
}

impl Resolver<'_> {
    /// Fails for a session outside of the binding as if it did not exist.
    pub fn see(&self, session: &SessionRecord) -> Result<(), Error> {
        let inside = self.binding.is_none_or(|binding| binding.holds(session));
        inside.then_some(()).ok_or_else(Error::session_not_found)
    }

    /// Adds what the metadata of a session must have, before its agent is bound to it. `at` is a pointer to the object
    /// that has it as a member: with what is added it may have no room any more.
    pub fn fill(&self, metadata: &mut Map<String, Value>, at: &str) -> Result<(), Error> {
        let filled = self.within(|binding| binding.fill(metadata))?;
        if filled.is_none() || has_room(metadata) {
            Ok(())
        } else {
            Err(Error::invalid(format!("{at}/metadata"), METADATA_TOO_LONG))
        }
    }

    /// Refuses a session that would lie outside of the binding.
    pub fn admit(&self, session: &NewSession) -> Result<(), Error> {
        self.admit_as(&session.agent, &session.metadata, session.key.session)
    }

    /// The same of a session that is made by a request with this key. One that was used before makes none, and its
    /// agent may be gone since.
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

    /// The same of what a session is to become.
    pub fn admit_as(
        &self,
        agent: &AgentSpec,
        metadata: &Map<String, Value>,
        session: SessionId,
    ) -> Result<(), Error> {
        self.within(|binding| binding.judge(agent, metadata, session))?;
        Ok(())
    }

    /// Refuses the memory of an agent that a send alone is run with, where it lies outside. The namespace is kept as
    /// it was judged: the metadata that it is made of may be changed before the send begins.
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

    /// Refuses options that make another agent of one that the key is bound to.
    pub(super) fn admit_options(&self, options: &SendOptions) -> Result<(), Error> {
        let names_agents = self.binding.is_some_and(Binding::names_agents);
        let is_other = options.model.is_some() || options.system_prompt.is_some();
        if names_agents && is_other {
            return Err(Error::outside(&Outside::Agent));
        }
        Ok(())
    }

    /// What a binding says, if there is one; what lies outside of it is refused.
    fn within<T>(
        &self,
        judge: impl FnOnce(&Binding) -> Result<T, Outside>,
    ) -> Result<Option<T>, Error> {
        let judged = self.binding.map(judge).transpose();
        judged.map_err(|why| Error::outside(&why))
    }
}
