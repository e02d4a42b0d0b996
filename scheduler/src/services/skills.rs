//! Skills of agents: names become versions.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{AGENT_SKILLS_MAX, AgentSkill, SkillRef};
use mainspring_shared::store::{AcceptSend, Store, Target};

use crate::error::{Error, FieldError};

/// Makes each skill of an agent the version that it means now, with its description: what the agent's
/// model is told follows from the agent from then on. `at` points to the agent in the request.
pub async fn pin(
    store: &dyn Store,
    tenant: TenantId,
    agent: &mut AgentSpec,
    at: &str,
) -> Result<(), Error> {
    if agent.skills.is_empty() {
        return Ok(());
    }
    let refs = references(&agent.skills, at)?;
    let found = store.find_skills(tenant, refs.clone()).await?;
    let mut errors = Vec::new();
    for (place, (wanted, record)) in refs.iter().zip(found).enumerate() {
        match record {
            Some(record) => agent.skills[place] = record.pinned(),
            None => errors.push(FieldError {
                pointer: format!("{at}/skills/{place}"),
                detail: missing(store, tenant, wanted).await?,
            }),
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid_members(errors))
    }
}

/// The same for the session that a send brings along.
pub async fn pin_item(store: &dyn Store, item: &mut AcceptSend, at: &str) -> Result<(), Error> {
    match &mut item.target {
        Target::New(new) => pin(store, new.key.tenant, &mut new.agent, at).await,
        Target::Existing(_) => Ok(()),
    }
}

/// What the skills of an agent name; refused unless each of them names one, and no other of them does.
fn references(skills: &[AgentSkill], at: &str) -> Result<Vec<SkillRef>, Error> {
    let mut errors = Vec::new();
    let mut refuse = |member: String, detail: String| {
        errors.push(FieldError {
            pointer: format!("{at}/skills{member}"),
            detail,
        });
    };
    if skills.len() > AGENT_SKILLS_MAX {
        refuse(
            String::new(),
            format!("must have at most {AGENT_SKILLS_MAX} skills"),
        );
    }
    let mut refs: Vec<SkillRef> = Vec::with_capacity(skills.len());
    for (place, skill) in skills.iter().enumerate().take(AGENT_SKILLS_MAX) {
        match skill.reference() {
            Err(error) => refuse(format!("/{place}"), error.to_string()),
            Ok(wanted) if refs.iter().any(|other| other.name == wanted.name) => {
                let detail = format!("{} is named twice", wanted.name);
                refuse(format!("/{place}"), detail);
            }
            Ok(wanted) => refs.push(wanted),
        }
    }
    if errors.is_empty() {
        Ok(refs)
    } else {
        Err(Error::invalid_members(errors))
    }
}

/// Why a skill is not there.
async fn missing(store: &dyn Store, tenant: TenantId, wanted: &SkillRef) -> Result<String, Error> {
    let broken = store.broken_skills(tenant).await?;
    let broken = broken.iter().find(|broken| broken.folder == wanted.name);
    Ok(
        match (wanted.hash, broken.and_then(|broken| broken.faults.first())) {
            (None, Some(fault)) => {
                format!("the skill {} was left out: {fault}", wanted.name)
            }
            (None, None) => format!("there is no skill {}", wanted.name),
            (Some(_), _) => format!("there is no such version of the skill {}", wanted.name),
        },
    )
}
