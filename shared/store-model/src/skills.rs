//! Skills.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{
    BrokenSkill, Skill, SkillFault, SkillHash, SkillRecord, SkillRef, SkillSource,
};
use mainspring_shared::store::{
    DumpSkill, ListSkills, Page, PublishSkill, PublishSkillOutcome, Result, SKILL_VERSIONS_MAX,
    SkillVersion, Skills, takes_name,
};
use mainspring_shared::time::Timestamp;

use crate::memory::ModelStore;
use crate::reads::page;
use crate::state::{Seen, State};

/// The versions of a name.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// The current version of the name, if it is listed.
    current: Option<(SkillHash, SkillSource)>,
    versions: BTreeMap<SkillHash, (SkillRecord, Arc<Skill>)>,
}

#[async_trait]
impl Skills for ModelStore {
    async fn publish_skill(&self, item: PublishSkill) -> Result<PublishSkillOutcome> {
        let (mut state, now) = self.begin();
        Ok(publish(&mut state, now, &item))
    }

    async fn note_broken_skill(
        &self,
        tenant: TenantId,
        folder: String,
        faults: Vec<SkillFault>,
    ) -> Result<()> {
        let (mut state, seen_at) = self.begin();
        let broken = BrokenSkill {
            folder: folder.clone(),
            faults,
            seen_at,
        };
        state.agents.broken_skills.insert((tenant, folder), broken);
        Ok(())
    }

    async fn remove_skill(&self, tenant: TenantId, name: String, versions: bool) -> Result<bool> {
        let (mut state, _) = self.begin();
        let slot = (tenant, name);
        let mended = state.agents.broken_skills.remove(&slot).is_some();
        let Some(named) = state.agents.skills.get_mut(&slot) else {
            return Ok(mended);
        };
        let listed = named.current.take().is_some();
        let gone = versions && !named.versions.is_empty();
        if versions {
            state.agents.skills.remove(&slot);
        }
        Ok(mended || listed || gone)
    }

    async fn find_skills(
        &self,
        tenant: TenantId,
        refs: Vec<SkillRef>,
    ) -> Result<Vec<Option<SkillRecord>>> {
        let (state, _) = self.begin();
        let found = refs.into_iter().map(|wanted| {
            let named = state.agents.skills.get(&(tenant, wanted.name))?;
            let hash = wanted.hash.or(named.current.map(|(hash, _)| hash))?;
            named.versions.get(&hash).map(|(record, _)| record.clone())
        });
        Ok(found.collect())
    }

    async fn list_skills(&self, query: ListSkills) -> Result<Page<SkillRecord>> {
        let (state, _) = self.begin();
        let listed = state
            .agents
            .skills
            .iter()
            .filter_map(|((tenant, name), named)| {
                let behind = query.after.as_ref().is_none_or(|after| name > after);
                let (hash, _) = named
                    .current
                    .filter(|_| *tenant == query.tenant && behind)?;
                named.versions.get(&hash).map(|(record, _)| record.clone())
            });
        Ok(page(listed, query.limit))
    }

    async fn skill_versions(&self, tenant: TenantId, name: String) -> Result<Vec<SkillVersion>> {
        let (state, _) = self.begin();
        let named = state.agents.skills.get(&(tenant, name));
        let versions = named.into_iter().flat_map(|named| named.versions.values());
        let mut versions: Vec<_> = versions
            .map(|(record, _)| SkillVersion {
                hash: record.hash,
                source: record.source,
                created_at: record.created_at,
            })
            .collect();
        versions.sort_by_key(|version| (-version.created_at.0, version.hash));
        versions.truncate(SKILL_VERSIONS_MAX as usize);
        Ok(versions)
    }

    async fn broken_skills(&self, tenant: TenantId) -> Result<Vec<BrokenSkill>> {
        let (state, _) = self.begin();
        let broken = state.agents.broken_skills.iter();
        let broken = broken.filter(|((owner, _), _)| *owner == tenant);
        Ok(broken.map(|(_, broken)| broken.clone()).collect())
    }

    async fn read_skill_files(
        &self,
        tenant: TenantId,
        name: String,
        hash: SkillHash,
        paths: Vec<String>,
    ) -> Result<BTreeMap<String, Vec<u8>>> {
        let (state, _) = self.begin();
        let named = state.agents.skills.get(&(tenant, name));
        let Some((_, skill)) = named.and_then(|named| named.versions.get(&hash)) else {
            return Ok(BTreeMap::new());
        };
        let files = paths.into_iter().filter_map(|path| {
            let content = skill.files.get(&path)?.clone();
            Some((path, content))
        });
        Ok(files.collect())
    }
}

fn publish(state: &mut State, now: Timestamp, item: &PublishSkill) -> PublishSkillOutcome {
    match state.seen(item.idempotency.as_ref()) {
        Seen::Never => {}
        Seen::Before(_) => return PublishSkillOutcome::Replayed,
        Seen::Mismatch => return PublishSkillOutcome::Mismatch,
    }
    state.remember(item.idempotency.as_ref(), item.resource(), now);
    let slot = (item.tenant, item.skill.name.clone());
    if item.source == SkillSource::Mounted {
        state.agents.broken_skills.remove(&slot);
    }
    let named = state.agents.skills.entry(slot).or_default();
    let hash = item.skill.hash;
    let created = !named.versions.contains_key(&hash);
    if created {
        let version = (item.record(now), item.skill.clone());
        named.versions.insert(hash, version);
    }
    if takes_name(named.current.map(|(_, source)| source), item.source) {
        named.current = Some((hash, item.source));
    }
    PublishSkillOutcome::Published {
        created,
        current: named.current.map(|(current, _)| current) == Some(hash),
    }
}

/// All skills, without their files' contents.
pub(crate) fn dump(state: &State) -> Vec<DumpSkill> {
    let skills = state.agents.skills.iter().map(|((tenant, name), named)| {
        let versions = named.versions.values().map(|(record, skill)| {
            let files = skill.files.iter();
            let files = files.map(|(path, content)| (path.clone(), content.len() as u64));
            (record.clone(), files.collect())
        });
        DumpSkill {
            tenant: *tenant,
            name: name.clone(),
            current: named.current.map(|(hash, _)| hash),
            versions: versions.collect(),
        }
    });
    skills.collect()
}
