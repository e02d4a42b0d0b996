//! The skills that a leaf's agent names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Agent;
use crate::agent::Delegation;
use crate::skill::{AGENT_SKILLS_MAX, AgentSkill, SkillRef};
use crate::workflow::run::RunOptions;
use crate::workflow::spec::Spec;
use crate::workflow::validate::reader::{Members, Reader};

/// The schema of the list.
pub(super) fn schema() -> Value {
    json!({"description": "Skills that its model may read, NAME or NAME@HASH; null for those of \
            the run's caller.",
        "anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}, "maxItems": AGENT_SKILLS_MAX}]})
}

/// How to write it.
pub(super) const HINT: &str = "write a list of skills, NAME or NAME@HASH, or leave it out";

/// Reads the list. Whether its skills exist is checked when the run is created.
pub(super) fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Option<Vec<SkillRef>> {
    members.given("skills")?;
    let texts = reader.texts(members, "skills")?;
    let pointer = members.pointer("skills");
    if texts.len() > AGENT_SKILLS_MAX {
        let message = format!("an agent has at most {AGENT_SKILLS_MAX} skills");
        reader.problem(pointer, "skill", message, HINT);
        return None;
    }
    let mut skills: Vec<SkillRef> = Vec::with_capacity(texts.len());
    for (place, text) in texts.iter().enumerate() {
        let fault = match text.parse::<SkillRef>() {
            Err(fault) => fault.to_string(),
            Ok(skill) if skills.iter().any(|other| other.name == skill.name) => {
                format!("{} is named twice", skill.name)
            }
            Ok(skill) if reader.granted.is_some_and(|granted| !has(granted, &skill)) => {
                format!("the caller has no skill {text:?}")
            }
            Ok(skill) => {
                skills.push(skill);
                continue;
            }
        };
        reader.problem(format!("{pointer}/{place}"), "skill", fault, HINT);
    }
    Some(skills)
}

fn has(granted: &Delegation, wanted: &SkillRef) -> bool {
    granted.skills().iter().any(|skill| is(skill, wanted))
}

fn is(skill: &AgentSkill, wanted: &SkillRef) -> bool {
    skill.name() == wanted.name && (wanted.hash.is_none() || skill.hash() == wanted.hash)
}

impl Spec {
    /// The skills that its leaves name.
    pub fn skills(&self) -> BTreeSet<SkillRef> {
        let named = self
            .agent_nodes()
            .filter_map(|agent| agent.spec.skills.as_ref());
        named.flatten().cloned().collect()
    }
}

impl Agent {
    /// The skills of its session's agent, in a run with these options: those that it names, in the
    /// versions pinned by the run, or else all that it inherits.
    pub(super) fn skills(
        &self,
        inherited: Vec<AgentSkill>,
        options: &RunOptions,
    ) -> Vec<AgentSkill> {
        let Some(wanted) = &self.spec.skills else {
            return inherited;
        };
        let kept: &BTreeMap<String, AgentSkill> = &options.skills;
        let found = wanted.iter().filter_map(|wanted| {
            let own = inherited.iter().find(|skill| is(skill, wanted));
            own.or_else(|| kept.get(&wanted.to_string())).cloned()
        });
        found.collect()
    }
}
