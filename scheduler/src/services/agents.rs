//! Resolves the agent that a request means: an inline spec, or a published version that it names.
//! Names are resolved before anything is stored, and what is stored contains the version.

mod bound;
mod send;

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::prompt::{bind, take_over};
use mainspring_shared::agent::{
    AgentKey, AgentQuery, AgentRef, AgentSpec, AgentVersion, Bound, Pick, PromptFault,
};
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::AgentSkill;
use mainspring_shared::store::IdempotencyKey;
use mainspring_shared::stored::Extra;
use mainspring_shared::tenant::Binding;
use mainspring_shared::workflow::run::{Pinned, RunOptions};
use mainspring_shared::workflow::spec::Spec;
use serde_json::{Map, Value};

use crate::app::App;
use crate::error::{Error, FieldError};
use crate::services::prices::{self, Written};
use crate::services::{pools, skills};

pub use self::bound::admit_agent;
pub use self::send::{AgentAsk, OptionsAsk};

/// An agent as given by a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// An inline spec.
    Inline(Box<AgentSpec>),
    /// A published agent.
    Named(AgentQuery),
}

/// The agent of a session, with the values of its variables.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// A pointer to the object that has `agent` and `variables` as members.
    pub at: String,
    pub agent: Choice,
    pub variables: Map<String, Value>,
}

/// What the key of a request allows to do with agents.
#[derive(Debug, Clone, Copy)]
pub struct Allowed<'a> {
    /// The part of the tenant that the key is bound to, if any.
    pub binding: Option<&'a Binding>,
    /// Whether it may define agents, and change one for a send.
    pub defines: bool,
}

/// Finds published agents for the parts of one request, so that a name means the same version in
/// all of them.
#[derive(Debug)]
pub struct Resolver<'a> {
    app: &'a App,
    /// The tenant whose agents are found.
    tenant: TenantId,
    allowed: Allowed<'a>,
    found: BTreeMap<AgentQuery, Option<AgentVersion>>,
}

impl<'a> Resolver<'a> {
    pub fn new(app: &'a App, tenant: TenantId, allowed: Allowed<'a>) -> Self {
        Self {
            app,
            tenant,
            allowed,
            found: BTreeMap::new(),
        }
    }

    /// The tenant whose agents are found.
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The binding of the request's key, if any.
    pub fn binding(&self) -> Option<&'a Binding> {
        self.allowed.binding
    }

    /// The version that a reference means. Fails with `agent.not_found`, or with `auth.binding` for
    /// an agent that the key is not bound to, whether that agent exists or not.
    pub async fn find(&mut self, query: &AgentQuery) -> Result<AgentVersion, Error> {
        admit_agent(self.allowed.binding, &query.name)?;
        if !self.found.contains_key(query) {
            let asked = vec![query.clone()];
            let found = self.app.store.find_agents(self.tenant, asked).await?;
            let found = found.into_iter().next().flatten();
            self.found.insert(query.clone(), found);
        }
        match self.found.get(query).cloned().flatten() {
            Some(found) => Ok(found),
            None => Err(self.not_found(query).await),
        }
    }

    /// Says what there is in place of an agent that was not found.
    async fn not_found(&self, query: &AgentQuery) -> Error {
        let name = query.name.clone();
        let key = AgentKey {
            tenant: self.tenant,
            name,
        };
        let agent = self.app.store.get_agent(key).await.ok().flatten();
        let detail = match agent {
            None => format!("no agent named {:?} is published", query.name.to_string()),
            Some(agent) if agent.archived_at.is_some() => {
                format!("the agent {:?} is archived", query.name.to_string())
            }
            Some(agent) => {
                let aliases = agent.aliases.keys().map(ToString::to_string);
                let aliases: Vec<_> = aliases.collect();
                let aliases = match aliases.as_slice() {
                    [] => "no alias".to_owned(),
                    names => format!("the aliases {}", names.join(", ")),
                };
                format!(
                    "{:?} matches no published agent; {:?} has the versions up to {} and {aliases}",
                    query.to_string(),
                    query.name.to_string(),
                    agent.version
                )
            }
        };
        Error::new(Code::AgentNotFound, detail)
    }

    /// The agent as a session with this metadata takes it. Fails with `agent.not_found`, or with
    /// `request.invalid` if the variables or the metadata do not fit its prompt. A request whose
    /// idempotency key was used before will store nothing, so it does not fail if the agent has
    /// changed or is gone.
    pub async fn take(
        &mut self,
        taken: Taken,
        metadata: &Map<String, Value>,
        key: Option<&IdempotencyKey>,
    ) -> Result<AgentSpec, Error> {
        match self.bound(taken, metadata).await {
            Err(error) if is_about_agents(error.code()) && self.is_known(key).await? => {
                Ok(AgentSpec::default())
            }
            outcome => outcome,
        }
    }

    async fn bound(
        &mut self,
        taken: Taken,
        metadata: &Map<String, Value>,
    ) -> Result<AgentSpec, Error> {
        let (spec, reference) = self.spec(taken.agent).await?;
        let at = format!("{}/agent", taken.at);
        self.admit_pool(&spec, &at).await?;
        self.admit_price(&spec, reference.as_ref(), &at).await?;
        bind(spec, reference, taken.variables, metadata)
            .map_err(|faults| invalid(&taken.at, faults))
    }

    /// The agent that replaces a session's current one. Without new values, it keeps the previous
    /// values of the variables that it declares.
    pub async fn replace(
        &mut self,
        agent: Choice,
        variables: Option<Map<String, Value>>,
        before: Map<String, Value>,
        metadata: &Map<String, Value>,
    ) -> Result<AgentSpec, Error> {
        let (spec, reference) = self.spec(agent).await?;
        self.admit_pool(&spec, "/agent").await?;
        self.admit_price(&spec, reference.as_ref(), "/agent")
            .await?;
        let bound = match variables {
            Some(variables) => bind(spec, reference, variables, metadata),
            None => take_over(spec, reference, before, metadata),
        };
        bound.map_err(|faults| invalid("", faults))
    }

    /// Takes an agent that an archive brings as what it is here. An archive proves nothing about
    /// itself: the agent is the published version that it says only if that would be bound to the
    /// same here. Otherwise it is one defined inline, and nobody else pays for it.
    pub async fn recognize(
        &self,
        agent: &mut AgentSpec,
        metadata: &Map<String, Value>,
    ) -> Result<(), Error> {
        let Some(bound) = &mut agent.bound else {
            return Ok(());
        };
        bound.payer = None;
        bound.extra = Extra::default();
        if let Some(said) = bound.agent.clone() {
            let variables = bound.variables.clone();
            let pick = Pick::Version(said.version);
            let name = said.name.clone();
            let asked = vec![AgentQuery { name, pick }];
            let found = self.app.store.find_agents(self.tenant, asked).await?;
            let found = found.into_iter().next().flatten();
            let here = found.and_then(|found| {
                let reference = found.reference();
                bind(found.spec, Some(reference), variables, metadata).ok()
            });
            if here.as_ref() != Some(&*agent)
                && let Some(bound) = &mut agent.bound
            {
                bound.agent = None;
            }
        }
        agent.bound.take_if(|bound| **bound == Bound::default());
        Ok(())
    }

    async fn spec(&mut self, agent: Choice) -> Result<(AgentSpec, Option<AgentRef>), Error> {
        Ok(match agent {
            Choice::Inline(spec) => {
                self.admit_own()?;
                (*spec, None)
            }
            Choice::Named(query) => {
                let version = self.find(&query).await?;
                let reference = version.reference();
                (version.spec, Some(reference))
            }
        })
    }

    /// Refuses an agent whose sends would run in a pool that the tenant may not name. `at` points
    /// to the agent.
    pub async fn admit_pool(&self, agent: &AgentSpec, at: &str) -> Result<(), Error> {
        pools::admit_agent(self.app, self.tenant, agent, at).await
    }

    /// Refuses an agent with a budget in dollars whose models have no price. `at` points to it.
    async fn admit_price(
        &self,
        agent: &AgentSpec,
        reference: Option<&AgentRef>,
        at: &str,
    ) -> Result<(), Error> {
        let written = match reference {
            Some(_) => Written::Named(at),
            None => Written::Whole(at),
        };
        prices::admit_agent(self.app, agent, written).await
    }

    /// The scheduler that it finds them for.
    pub(super) fn app(&self) -> &App {
        self.app
    }

    /// Refuses a run with a leaf that would run in such a pool, unless its idempotency key was used
    /// before, because then it starts nothing. `at` points to the run.
    pub async fn admit_run(
        &self,
        spec: &Spec,
        options: &RunOptions,
        (at, key): (&str, Option<&IdempotencyKey>),
    ) -> Result<(), Error> {
        if spec.defines() {
            self.admit_own()?;
        }
        let admitted = async {
            pools::admit_run(self.app, self.tenant, (spec, options), at).await?;
            prices::admit_run(self.app, options, at).await
        };
        match admitted.await {
            Err(error) if is_about_agents(error.code()) && self.is_known(key).await? => Ok(()),
            outcome => outcome,
        }
    }

    /// The published agents that a run's spec names, pinned for the run.
    pub async fn pin(
        &mut self,
        names: BTreeSet<AgentQuery>,
        key: Option<&IdempotencyKey>,
    ) -> Result<BTreeMap<AgentQuery, Pinned>, Error> {
        let mut pinned = BTreeMap::new();
        for query in names {
            match self.find(&query).await {
                Ok(version) => drop(pinned.insert(query, version.into())),
                Err(error) if is_about_agents(error.code()) && self.is_known(key).await? => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pinned)
    }

    /// The skills that a run's spec names, pinned for the run; see [`skills::pin_leaves`].
    pub async fn pin_skills(
        &mut self,
        spec: &Spec,
        written: (&Value, &str),
        key: Option<&IdempotencyKey>,
    ) -> Result<BTreeMap<String, AgentSkill>, Error> {
        let store = self.app.store.as_ref();
        match skills::pin_leaves(store, self.tenant, spec, written).await {
            Err(error) if error.code() == Code::SpecInvalid && self.is_known(key).await? => {
                Ok(BTreeMap::new())
            }
            outcome => outcome,
        }
    }

    /// Whether an earlier request used this idempotency key, so that this one stores nothing.
    pub async fn is_known(&self, key: Option<&IdempotencyKey>) -> Result<bool, Error> {
        match key {
            Some(key) => Ok(self.app.store.keyed_resource(key.clone()).await?.is_some()),
            None => Ok(false),
        }
    }
}

/// The same agent with other values of its variables, or for other metadata.
pub fn rebind(
    agent: AgentSpec,
    reference: Option<AgentRef>,
    variables: Option<Map<String, Value>>,
    metadata: &Map<String, Value>,
) -> Result<AgentSpec, Error> {
    let bound = bind(agent, reference, variables.unwrap_or_default(), metadata);
    bound.map_err(|faults| invalid("", faults))
}

fn invalid(at: &str, faults: Vec<PromptFault>) -> Error {
    let errors = faults.into_iter().map(|fault| FieldError {
        pointer: format!("{at}{}", fault.pointer),
        detail: fault.detail,
    });
    Error::invalid_members(errors.collect())
}

fn is_about_agents(code: Code) -> bool {
    matches!(
        code,
        Code::AgentNotFound | Code::RequestInvalid | Code::BudgetNoPrice
    )
}
