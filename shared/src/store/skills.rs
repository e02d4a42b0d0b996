//! Parameters of skills.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{IdempotencyKey, Page, Result};
use crate::id::TenantId;
use crate::skill::{BrokenSkill, Skill, SkillFault, SkillHash, SkillRecord, SkillRef, SkillSource};
use crate::time::Timestamp;

/// Skills and their versions. A version is a name with a hash. It never changes, and it remains
/// when its name moves to another version or is removed from the list.
#[async_trait]
pub trait Skills: Send + Sync {
    /// Stores a version unless it exists, and makes its name refer to it; see [`takes_name`]. Once
    /// per idempotency key.
    async fn publish_skill(&self, item: PublishSkill) -> Result<PublishSkillOutcome>;

    /// Records what is wrong with a mounted skill, until that folder's skill is published or removed.
    async fn note_broken_skill(
        &self,
        tenant: TenantId,
        folder: String,
        faults: Vec<SkillFault>,
    ) -> Result<()>;

    /// Removes a skill from the list, together with faults recorded for a folder of this name: the
    /// bare name no longer resolves. Versions stay for agents that use them, unless `versions` says
    /// to remove them, too. False if there is nothing of this name.
    async fn remove_skill(&self, tenant: TenantId, name: String, versions: bool) -> Result<bool>;

    /// Resolves references: a bare name to its current version, a version to itself even if its
    /// name is not listed. `None` if there is none.
    async fn find_skills(
        &self,
        tenant: TenantId,
        refs: Vec<SkillRef>,
    ) -> Result<Vec<Option<SkillRecord>>>;

    /// The listed skills' current versions, by name.
    async fn list_skills(&self, query: ListSkills) -> Result<Page<SkillRecord>>;

    /// The versions of a name, newest first, at most a hundred.
    async fn skill_versions(&self, tenant: TenantId, name: String) -> Result<Vec<SkillVersion>>;

    /// The mounted skills that were left out because of faults, by folder.
    async fn broken_skills(&self, tenant: TenantId) -> Result<Vec<BrokenSkill>>;

    /// The content of files of a version, by path; files that it does not have are left out.
    async fn read_skill_files(
        &self,
        tenant: TenantId,
        name: String,
        hash: SkillHash,
        paths: Vec<String>,
    ) -> Result<BTreeMap<String, Vec<u8>>>;
}

/// The methods of [`Skills`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! skills_methods {
    ($apply:ident) => {
        $apply! { Skills:
            write publish_skill(
                item: $crate::store::PublishSkill
            ) -> $crate::store::PublishSkillOutcome;
            write note_broken_skill(
                tenant: $crate::id::TenantId,
                folder: String,
                faults: Vec<$crate::skill::SkillFault>
            ) -> ();
            write remove_skill(tenant: $crate::id::TenantId, name: String, versions: bool) -> bool;
            read find_skills(
                tenant: $crate::id::TenantId,
                refs: Vec<$crate::skill::SkillRef>
            ) -> Vec<Option<$crate::skill::SkillRecord>>;
            read list_skills(
                query: $crate::store::ListSkills
            ) -> $crate::store::Page<$crate::skill::SkillRecord>;
            read skill_versions(
                tenant: $crate::id::TenantId,
                name: String
            ) -> Vec<$crate::store::SkillVersion>;
            read broken_skills(tenant: $crate::id::TenantId) -> Vec<$crate::skill::BrokenSkill>;
            read read_skill_files(
                tenant: $crate::id::TenantId,
                name: String,
                hash: $crate::skill::SkillHash,
                paths: Vec<String>
            ) -> ::std::collections::BTreeMap<String, Vec<u8>>;
        }
    };
}

/// Maximum number of versions in one response.
pub const SKILL_VERSIONS_MAX: i64 = 100;

/// A skill to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishSkill {
    /// The owner.
    pub tenant: TenantId,
    /// The skill.
    pub skill: Arc<Skill>,
    /// Where it comes from.
    pub source: SkillSource,
    /// The request's idempotency key.
    pub idempotency: Option<IdempotencyKey>,
}

impl PublishSkill {
    /// The resource id for an idempotency key: the first half of the version's hash.
    pub fn resource(&self) -> uuid::Uuid {
        let bytes = self.skill.hash.bytes();
        uuid::Uuid::from_bytes(std::array::from_fn(|at| bytes[at]))
    }

    /// The version as stored at this time.
    pub fn record(&self, now: Timestamp) -> SkillRecord {
        SkillRecord {
            name: self.skill.name.clone(),
            hash: self.skill.hash,
            source: self.source,
            manifest: self.skill.manifest.clone(),
            created_at: now,
        }
    }
}

/// The outcome of publishing a skill.
#[derive(Debug, Clone, PartialEq)]
pub enum PublishSkillOutcome {
    /// The version is stored.
    Published {
        /// Whether it was stored for the first time.
        created: bool,
        /// Whether its name refers to it now.
        current: bool,
    },
    /// The same request was served before under this idempotency key.
    Replayed,
    /// Another request was served under this idempotency key.
    Mismatch,
}

/// A version in a list of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkillVersion {
    /// The version.
    pub hash: SkillHash,
    /// Where it came from when it was stored.
    pub source: SkillSource,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// A query for skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSkills {
    /// The owner.
    pub tenant: TenantId,
    /// Only those after this name.
    pub after: Option<String>,
    /// At most this many.
    pub limit: u32,
}

/// Whether the name should refer to a new version from `source`. `current` is the source of the
/// version that it refers to now, if it is listed. A mounted skill never replaces an uploaded one,
/// so that people can override a mounted skill by an upload.
pub fn takes_name(current: Option<SkillSource>, source: SkillSource) -> bool {
    !(current == Some(SkillSource::Uploaded) && source == SkillSource::Mounted)
}
