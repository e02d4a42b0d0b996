//! Budgets in dollars need models with a price. What a model costs is in the configuration of the
//! workers; they publish which prices they know when they start.
//!
//! This is checked when an agent is published, when a session gets its agent, when a send or a timer
//! comes with a budget or a model of its own, and when a run names published agents. Only what all
//! known workers of the pool cannot price is refused. Where it cannot be known (no worker has started
//! yet, or one is of another release), the send is accepted, and fails before its model is called.

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::budget::{Budget, no_price};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::store::IdempotencyKey;
use mainspring_shared::workflow::run::RunOptions;

use super::agents::Resolver;
use crate::app::App;
use crate::error::{Error, FieldError};

/// Where the parts of an agent are in a request.
#[derive(Debug, Clone, Copy)]
pub enum Written<'a> {
    /// This pointer is to the agent.
    Whole(&'a str),
    /// This pointer is to its name, or to what contains it.
    Named(&'a str),
}

impl Written<'_> {
    fn pointer(self, member: &str) -> String {
        match self {
            Self::Whole(at) => format!("{at}{member}"),
            Self::Named(at) => at.to_owned(),
        }
    }
}

fn is_in_dollars(budget: Option<&Budget>) -> bool {
    budget.is_some_and(|budget| budget.usd.is_some())
}

/// Refuses an agent with a budget in dollars if one of its models has no price.
pub async fn admit_agent(app: &App, agent: &AgentSpec, written: Written<'_>) -> Result<(), Error> {
    if !is_in_dollars(agent.budget.as_ref()) {
        return Ok(());
    }
    let own = match agent.model {
        Some(_) => written.pointer("/model"),
        None => written.pointer("/budget/usd"),
    };
    let fallback = |place: usize| written.pointer(&format!("/fallback/{place}"));
    refuse(app, agent.pool(), models(agent, None), own, fallback).await
}

/// An agent's own model, or the one that replaces it, and then its fallback models.
fn models<'a>(
    agent: &'a AgentSpec,
    instead: Option<&'a str>,
) -> impl Iterator<Item = Option<&'a str>> {
    let own = instead.or(agent.model.as_deref());
    std::iter::once(own).chain(agent.fallback.iter().map(|model| Some(model.as_str())))
}

async fn refuse(
    app: &App,
    pool: &str,
    models: impl Iterator<Item = Option<&str>>,
    own: String,
    fallback: impl Fn(usize) -> String,
) -> Result<(), Error> {
    let mut errors = Vec::new();
    for (place, model) in models.enumerate() {
        if let Some(name) = app.acceptor.lacks_price(app, (pool, model)).await {
            errors.push(FieldError {
                pointer: match place.checked_sub(1) {
                    None => own.clone(),
                    Some(place) => fallback(place),
                },
                detail: no_price(&name),
            });
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Error::with_members(Code::BudgetNoPrice, errors))
    }
}

/// Refuses a run that names a published agent with a budget in dollars, if one of that agent's models
/// has no price. `at` points to the run.
pub async fn admit_run(app: &App, options: &RunOptions, at: &str) -> Result<(), Error> {
    for pinned in options.agents.values() {
        let agent = AgentSpec {
            pool: options.pool.clone().or(pinned.spec.pool.clone()),
            ..pinned.spec.clone()
        };
        admit_agent(app, &agent, Written::Named(&format!("{at}/spec"))).await?;
    }
    Ok(())
}

impl Resolver<'_> {
    /// Refuses the options of a send if it would have a budget in dollars and a model without a
    /// price. `agent` is the session's; it is read if it is not given and matters. The agent itself
    /// was checked when the session got it.
    pub async fn admit_prices(
        &self,
        options: &SendOptions,
        (session, agent): (SessionKey, Option<&AgentSpec>),
        key: Option<&IdempotencyKey>,
    ) -> Result<(), Error> {
        let own = is_in_dollars(options.budget.as_ref());
        if !own && options.model.is_none() && options.agent.is_none() {
            return Ok(());
        }
        let read;
        let agent = match agent {
            Some(agent) => agent,
            None => match self.app().store.get_session(session).await? {
                Some(found) => {
                    read = found.agent;
                    &read
                }
                // That is refused when the send is stored.
                None => return Ok(()),
            },
        };
        if !own && !is_in_dollars(agent.budget.as_ref()) {
            return Ok(());
        }
        let runs = options.agent_in(agent.clone());
        let pointer = if options.model.is_some() {
            "/options/model"
        } else if own {
            "/options/budget/usd"
        } else {
            "/options/agent"
        };
        let others = if own { "/options/budget/usd" } else { pointer };
        let models = models(&runs, options.model.as_deref());
        let refused = refuse(self.app(), runs.pool(), models, pointer.to_owned(), |_| {
            others.to_owned()
        });
        match refused.await {
            Err(_) if self.is_known(key).await? => Ok(()),
            outcome => outcome,
        }
    }
}
