//! Nouns that belong to one tenant each, and the macro that routes methods of the port.

use async_trait::async_trait;
use mainspring_shared::agent::{
    AgentKey, AgentLimits, AgentName, AgentQuery, AgentVersion, NamedAgent,
};
use mainspring_shared::blob::{BlobHash, BlobOwner, BlobPlace};
use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::list::{List, ListName};
use mainspring_shared::memory::{MemoryEntry, Namespace};
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::skill::{BrokenSkill, SkillFault, SkillHash, SkillRecord, SkillRef};
use mainspring_shared::store::{
    Agents, AliasOutcome, BeginBlob, BlobRecord, BlobRows, CalibrationRecord, Calibrations,
    ChangeMemory, ClaimExtractions, ClaimUnembedded, EndExtraction, EraseMemories, ErasedMemories,
    Erasure, Extraction, Extractions, ListAgentVersions, ListAgents, ListErasures, ListMemories,
    ListOutcome, ListProviderKeys, ListSkills, Lists, McpList, McpLists, Memories, NewBlob,
    NewExtraction, Page, PaidVectors, ProviderKeys, PublishAgent, PublishOutcome, PublishSkill,
    PublishSkillOutcome, Result, RetireBlobs, RetiredBlobs, SaveMemory, SaveMemoryOutcome,
    SearchMemories, SetAlias, SetEmbedding, SetProviderKey, SkillVersion, Skills, Unembedded,
    WriteList,
};
use std::collections::BTreeMap;

use super::{claims, everywhere};
use crate::store::PlacedStore;

/// Copies an argument for a call to another database.
pub(crate) fn again<T: Clone>(argument: &T) -> T {
    argument.clone()
}

/// Implements a noun of the port. Each method declares its route: `at` a tenant's database, `home`,
/// or `by` a function. Methods that call no database are written out in braces after the noun.
macro_rules! placed {
    ($noun:ident $({ $($more:tt)* })?: $(fn $method:ident($($arg:ident: $type:ty),* $(,)?) -> $out:ty = $how:ident $by:tt;)+) => {
        #[async_trait]
        impl $noun for PlacedStore {
            $($($more)*)?
            $(async fn $method(&self, $($arg: $type),*) -> Result<$out> {
                placed!(@$how self, $method, [$($arg),*], $by)
            })+
        }
    };
    (@at $self:ident, $method:ident, [$($arg:ident),*], ($tenant:expr)) => {
        $self.at($tenant, |place| {
            $(let $arg = $crate::routes::by_tenant::again(&$arg);)*
            async move { place.store.$method($($arg),*).await }
        }).await
    };
    (@home $self:ident, $method:ident, [$($arg:ident),*], ()) => {{
        let home = $self.home();
        home.ask(home.store.$method($($arg),*)).await
    }};
    (@by $self:ident, $method:ident, [$($arg:ident),*], ($function:path)) => {
        $function($self, $($arg),*).await
    };
}
pub(crate) use placed;

placed! { Agents:
    fn publish_agent(item: PublishAgent) -> PublishOutcome = at (item.key.tenant);
    fn limited_agents(tenant: TenantId) -> Vec<(AgentName, AgentLimits)> = at (tenant);
    fn set_alias(item: SetAlias) -> AliasOutcome = at (item.key.tenant);
    fn archive_agent(key: AgentKey, archived: bool) -> Option<NamedAgent> = at (key.tenant);
    fn get_agent(key: AgentKey) -> Option<NamedAgent> = at (key.tenant);
    fn list_agents(query: ListAgents) -> Page<NamedAgent> = at (query.tenant);
    fn get_agent_version(key: AgentKey, n: i32) -> Option<AgentVersion> = at (key.tenant);
    fn list_agent_versions(query: ListAgentVersions) -> Page<AgentVersion> = at (query.key.tenant);
    fn find_agents(
        tenant: TenantId,
        queries: Vec<AgentQuery>,
    ) -> Vec<Option<AgentVersion>> = at (tenant);
}

placed! { BlobRows:
    fn begin_blob(blob: NewBlob) -> BeginBlob = at (blob.place.tenant);
    fn finish_blob(place: BlobPlace, owner: Option<BlobOwner>) -> bool = at (place.tenant);
    fn hold_blobs(
        tenant: TenantId,
        owner: BlobOwner,
        hashes: Vec<BlobHash>,
    ) -> Vec<Option<BlobRecord>> = at (tenant);
    fn get_blobs(tenant: TenantId, hashes: Vec<BlobHash>) -> Vec<Option<BlobRecord>> = at (tenant);
    fn retire_blobs(query: RetireBlobs) -> RetiredBlobs = by (everywhere::retire_blobs);
    fn forget_blob(place: BlobPlace) -> () = at (place.tenant);
    fn write_blob_chunk(place: BlobPlace, n: i32, data: bytes::Bytes) -> () = at (place.tenant);
    fn read_blob_chunk(place: BlobPlace, n: i32) -> Option<bytes::Bytes> = at (place.tenant);
    fn drop_blob_chunks(place: BlobPlace, limit: u32) -> u64 = at (place.tenant);
}

placed! { Calibrations:
    fn save_calibrations(learned: Vec<CalibrationRecord>) -> () = home ();
    fn list_calibrations(limit: u32) -> Vec<CalibrationRecord> = home ();
}

placed! { McpLists:
    fn save_mcp_list(list: McpList) -> () = home ();
    fn read_mcp_list(server: String) -> Option<String> = home ();
}

placed! { Extractions:
    fn owe_extraction(item: NewExtraction) -> () = at (item.key.tenant);
    fn claim_extractions(claim: ClaimExtractions) -> Vec<Extraction> = by (claims::claim_extractions);
    fn end_extraction(item: EndExtraction) -> bool = at (item.key.tenant);
}

placed! { Lists:
    fn write_list(item: WriteList) -> ListOutcome = at (item.session.tenant);
    fn read_list(tenant: TenantId, name: ListName) -> List = at (tenant);
}

placed! { Memories:
    fn save_memory(item: SaveMemory) -> SaveMemoryOutcome = at (item.tenant);
    fn change_memory(item: ChangeMemory) -> Option<MemoryEntry> = at (item.tenant);
    fn delete_memory(tenant: TenantId, within: Option<Namespace>, id: MemoryId) -> bool = at (tenant);
    fn erase_memories(item: EraseMemories) -> ErasedMemories = at (item.tenant);
    fn expire_memories(limit: u32) -> u64 = by (everywhere::expire_memories);
    fn get_memory(tenant: TenantId, id: MemoryId) -> Option<MemoryEntry> = at (tenant);
    fn list_erasures(query: ListErasures) -> Page<Erasure> = at (query.tenant);
    fn list_memories(query: ListMemories) -> Page<MemoryEntry> = at (query.tenant);
    fn search_memories(query: SearchMemories) -> Vec<MemoryEntry> = at (query.tenant);
    fn claim_unembedded(claim: ClaimUnembedded) -> Vec<Unembedded> = by (claims::claim_unembedded);
    fn set_embedding(item: SetEmbedding) -> bool = at (item.tenant);
    fn pay_for_vectors(tenant: TenantId, paid: Vec<PaidVectors>) -> () = at (tenant);
}

placed! { ProviderKeys:
    fn set_provider_key(item: SetProviderKey) -> ProviderKeyRecord = home ();
    fn find_provider_key(tenant: TenantId, provider: String) -> Option<ProviderKeyRecord> = home ();
    fn list_provider_keys(query: ListProviderKeys) -> Page<ProviderKeyRecord> = home ();
    fn delete_provider_key(tenant: TenantId, provider: String) -> bool = home ();
}

placed! { Skills:
    fn publish_skill(item: PublishSkill) -> PublishSkillOutcome = at (item.tenant);
    fn note_broken_skill(
        tenant: TenantId,
        folder: String,
        faults: Vec<SkillFault>,
    ) -> () = at (tenant);
    fn remove_skill(tenant: TenantId, name: String, versions: bool) -> bool = at (tenant);
    fn find_skills(tenant: TenantId, refs: Vec<SkillRef>) -> Vec<Option<SkillRecord>> = at (tenant);
    fn list_skills(query: ListSkills) -> Page<SkillRecord> = at (query.tenant);
    fn skill_versions(tenant: TenantId, name: String) -> Vec<SkillVersion> = at (tenant);
    fn broken_skills(tenant: TenantId) -> Vec<BrokenSkill> = at (tenant);
    fn read_skill_files(
        tenant: TenantId,
        name: String,
        hash: SkillHash,
        paths: Vec<String>,
    ) -> BTreeMap<String, Vec<u8>> = at (tenant);
}
