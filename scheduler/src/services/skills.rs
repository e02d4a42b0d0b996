//! Resolves the skills of agents to versions.

use std::collections::BTreeMap;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{AGENT_SKILLS_MAX, AgentSkill, SkillRef};
use mainspring_shared::store::{AcceptSend, Store, Target};
use mainspring_shared::workflow::spec::Spec;
use serde_json::{Map, Value};

use crate::error::{Error, FieldError};

/// Replaces each skill of an agent by its current version, with the description, so that from then
/// on the agent alone determines what its model is told. `at` points to the agent in the request.
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

/// The skills that the leaves of a workflow name, pinned for a run. `written` is the workflow as
/// given in the request, and `at` points to it there.
pub async fn pin_leaves(
    store: &dyn Store,
    tenant: TenantId,
    spec: &Spec,
    (written, at): (&Value, &str),
) -> Result<BTreeMap<String, AgentSkill>, Error> {
    let refs: Vec<SkillRef> = spec.skills().into_iter().collect();
    if refs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = store.find_skills(tenant, refs.clone()).await?;
    let mut pinned = BTreeMap::new();
    let mut errors = Vec::new();
    for (wanted, record) in refs.iter().zip(found) {
        let text = wanted.to_string();
        match record {
            Some(record) => drop(pinned.insert(text, record.pinned())),
            None => errors.push(FieldError {
                pointer: format!("{at}{}", place_of(written, &text).unwrap_or_default()),
                detail: missing(store, tenant, wanted).await?,
            }),
        }
    }
    if errors.is_empty() {
        Ok(pinned)
    } else {
        Err(Error::with_members(Code::SpecInvalid, errors))
    }
}

/// A pointer to the first place where a workflow names a skill, or to the text that contains the
/// name.
fn place_of(written: &Value, skill: &str) -> Option<String> {
    let listed = |members: &Map<String, Value>| {
        let named = members.get("spec")?.get("skills")?.as_array()?;
        let place = named.iter().position(|one| one == skill)?;
        Some(format!("/spec/skills/{place}"))
    };
    match written {
        Value::Object(members) => listed(members).or_else(|| {
            members.iter().find_map(|(name, value)| {
                let below = place_of(value, skill)?;
                let name = name.replace('~', "~0").replace('/', "~1");
                Some(format!("/{name}{below}"))
            })
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(place, value)| {
            let below = place_of(value, skill)?;
            Some(format!("/{place}{below}"))
        }),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Like `pin`, for the new session that a send creates.
pub async fn pin_item(store: &dyn Store, item: &mut AcceptSend, at: &str) -> Result<(), Error> {
    match &mut item.target {
        Target::New(new) => pin(store, new.key.tenant, &mut new.agent, at).await,
        Target::Existing(_) => Ok(()),
    }
}

/// The references of an agent's skills. Fails unless each names a skill, and no two name the same.
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

/// Why a skill was not found.
async fn missing(store: &dyn Store, tenant: TenantId, wanted: &SkillRef) -> Result<String, Error> {
    let broken = store.broken_skills(tenant).await?;
    let broken = broken.iter().find(|broken| broken.folder == wanted.name);
    Ok(
        match (wanted.hash, broken.and_then(|broken| broken.faults.first())) {
            (None, Some(fault)) => {
                format!("the skill {} was left out: {fault}", wanted.name)
            }
            (None, None) => format!("there is no skill {}", wanted.name),
            (Some(_), _) => format!("the skill {} has no such version", wanted.name),
        },
    )
}
