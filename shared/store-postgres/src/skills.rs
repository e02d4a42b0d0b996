//! Skills.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{
    BrokenSkill, SkillFault, SkillHash, SkillRecord, SkillRef, SkillSource,
};
use mainspring_shared::store::{
    DumpSkill, ListSkills, Page, PublishSkill, PublishSkillOutcome, Result, SKILL_VERSIONS_MAX,
    SkillVersion, Skills, takes_name,
};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::accept::{Taken, take};
use crate::columns::{json, text};
use crate::fault::Fault;
use crate::ledger::now;
use crate::reads::page;
use crate::retry::{repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

type Done<T> = std::result::Result<T, Fault>;

#[async_trait]
impl Skills for PostgresStore {
    async fn publish_skill(&self, item: PublishSkill) -> Result<PublishSkillOutcome> {
        repeatable!(&self.pools.writers, |connection| publish(
            connection, self.at, &item
        ))
    }

    async fn note_broken_skill(
        &self,
        tenant: TenantId,
        folder: String,
        faults: Vec<SkillFault>,
    ) -> Result<()> {
        repeatable!(&self.pools.writers, |connection| note_broken(
            connection, self.at, tenant, &folder, &faults
        ))
    }

    async fn remove_skill(&self, tenant: TenantId, name: String, versions: bool) -> Result<bool> {
        repeatable!(&self.pools.writers, |connection| remove(
            connection, self.at, tenant, &name, versions
        ))
    }

    async fn find_skills(
        &self,
        tenant: TenantId,
        refs: Vec<SkillRef>,
    ) -> Result<Vec<Option<SkillRecord>>> {
        repeatable!(&self.pools.claimers, |connection| find(
            connection, tenant, &refs
        ))
    }

    async fn list_skills(&self, query: ListSkills) -> Result<Page<SkillRecord>> {
        repeatable!(&self.pools.readers, |connection| list(connection, &query))
    }

    async fn skill_versions(&self, tenant: TenantId, name: String) -> Result<Vec<SkillVersion>> {
        repeatable!(&self.pools.readers, |connection| versions(
            connection, tenant, &name
        ))
    }

    async fn broken_skills(&self, tenant: TenantId) -> Result<Vec<BrokenSkill>> {
        repeatable!(&self.pools.readers, |connection| broken(connection, tenant))
    }

    async fn read_skill_files(
        &self,
        tenant: TenantId,
        name: String,
        hash: SkillHash,
        paths: Vec<String>,
    ) -> Result<BTreeMap<String, Vec<u8>>> {
        repeatable!(&self.pools.claimers, |connection| files(
            connection,
            (tenant, &name, hash),
            &paths
        ))
    }
}

async fn publish(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &PublishSkill,
) -> Done<PublishSkillOutcome> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    if let Some(key) = &item.idempotency {
        match take(&mut tx, at, key, item.resource()).await? {
            Taken::Now => {}
            Taken::Before(_) => return Ok(PublishSkillOutcome::Replayed),
            Taken::ByAnother => return Ok(PublishSkillOutcome::Mismatch),
        }
    }
    let (tenant, name, hash) = (item.tenant.0, item.skill.name.clone(), item.skill.hash);
    sql!("skills/lock")
        .bind(tenant)
        .bind(name.clone())
        .bind(hash.to_string())
        .bind(item.source.as_str())
        .bind(now.0)
        .execute(&mut *tx)
        .await?;
    let before = sql!("skills/current")
        .bind(tenant)
        .bind(name.clone())
        .fetch_one(&mut *tx)
        .await?;
    let before = current(&before)?;
    let known = sql!("skills/known")
        .bind(tenant)
        .bind(name.clone())
        .bind(hash.to_string())
        .fetch_optional(&mut *tx)
        .await?;
    let created = known.is_none();
    if created {
        store(&mut tx, now, item).await?;
    }
    let takes = takes_name(before.map(|(_, source)| source), item.source);
    if takes {
        sql!("skills/save")
            .bind(tenant)
            .bind(name.clone())
            .bind(hash.to_string())
            .bind(item.source.as_str())
            .bind(now.0)
            .execute(&mut *tx)
            .await?;
    }
    if item.source == SkillSource::Mounted {
        sql!("skills/mend")
            .bind(tenant)
            .bind(name)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(PublishSkillOutcome::Published {
        created,
        current: takes || before.map(|(current, _)| current) == Some(hash),
    })
}

async fn store(connection: &mut PgConnection, now: Timestamp, item: &PublishSkill) -> Done<()> {
    let record = item.record(now);
    sql!("skills/insert")
        .bind(item.tenant.0)
        .bind(record.name.clone())
        .bind(record.hash.to_string())
        .bind(record.source.as_str())
        .bind(json(&record.manifest))
        .bind(now.0)
        .execute(&mut *connection)
        .await?;
    let (paths, contents): (Vec<String>, Vec<Vec<u8>>) =
        item.skill.files.clone().into_iter().unzip();
    sql!("skills/insert_files")
        .bind(item.tenant.0)
        .bind(record.name)
        .bind(record.hash.to_string())
        .bind(paths)
        .bind(contents)
        .execute(connection)
        .await?;
    Ok(())
}

async fn note_broken(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    folder: &str,
    faults: &[SkillFault],
) -> Done<()> {
    let seen_at = now(connection, at).await?;
    sql!("skills/note_broken")
        .bind(tenant.0)
        .bind(text(folder).into_owned())
        .bind(json(&faults))
        .bind(seen_at.0)
        .execute(connection)
        .await?;
    Ok(())
}

async fn remove(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    name: &str,
    versions: bool,
) -> Done<bool> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let mended = sql!("skills/mend")
        .bind(tenant.0)
        .bind(name.to_owned())
        .execute(&mut *tx)
        .await?;
    let unlisted = sql!("skills/unlist")
        .bind(tenant.0)
        .bind(name.to_owned())
        .bind(now.0)
        .execute(&mut *tx)
        .await?;
    let mut gone = mended.rows_affected() + unlisted.rows_affected();
    if versions {
        for query in [
            sql!("skills/forget"),
            sql!("skills/forget_files"),
            sql!("skills/forget_versions"),
        ] {
            let done = query
                .bind(tenant.0)
                .bind(name.to_owned())
                .execute(&mut *tx)
                .await?;
            gone += done.rows_affected();
        }
    }
    tx.commit().await?;
    Ok(gone > 0)
}

async fn find(
    connection: &mut PgConnection,
    tenant: TenantId,
    refs: &[SkillRef],
) -> Done<Vec<Option<SkillRecord>>> {
    let names = refs.iter().map(|wanted| wanted.name.clone());
    let hashes = refs
        .iter()
        .map(|wanted| wanted.hash.map(|hash| hash.to_string()));
    let rows = sql!("skills/find")
        .bind(tenant.0)
        .bind(names.collect::<Vec<String>>())
        .bind(hashes.collect::<Vec<Option<String>>>())
        .fetch_all(connection)
        .await?;
    let mut found = vec![None; refs.len()];
    for row in &rows {
        let ord = Fields::new(row, "skill_versions").ord()?;
        found[ord] = Some(record(row)?);
    }
    Ok(found)
}

async fn list(connection: &mut PgConnection, query: &ListSkills) -> Done<Page<SkillRecord>> {
    let rows = sql!("skills/list")
        .bind(query.tenant.0)
        .bind(query.after.clone().unwrap_or_default())
        .bind(i64::from(query.limit) + 1)
        .fetch_all(connection)
        .await?;
    Ok(page(&rows, query.limit, record))
}

async fn versions(
    connection: &mut PgConnection,
    tenant: TenantId,
    name: &str,
) -> Done<Vec<SkillVersion>> {
    let rows = sql!("skills/versions")
        .bind(tenant.0)
        .bind(name.to_owned())
        .bind(SKILL_VERSIONS_MAX)
        .fetch_all(connection)
        .await?;
    let mut versions = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "skill_versions");
        versions.push(SkillVersion {
            hash: hash(&mut fields)?,
            source: fields.name("source", SkillSource::parse)?,
            created_at: fields.time("created_at")?,
        });
    }
    Ok(versions)
}

async fn broken(connection: &mut PgConnection, tenant: TenantId) -> Done<Vec<BrokenSkill>> {
    let rows = sql!("skills/broken")
        .bind(tenant.0)
        .fetch_all(connection)
        .await?;
    let mut broken = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "skill_faults");
        broken.push(BrokenSkill {
            folder: fields.take("folder")?,
            faults: fields.json("faults")?,
            seen_at: fields.time("seen_at")?,
        });
    }
    Ok(broken)
}

async fn files(
    connection: &mut PgConnection,
    (tenant, name, hash): (TenantId, &str, SkillHash),
    paths: &[String],
) -> Done<BTreeMap<String, Vec<u8>>> {
    let paths: Vec<String> = paths.iter().map(|path| text(path).into_owned()).collect();
    let rows = sql!("skills/files")
        .bind(tenant.0)
        .bind(name.to_owned())
        .bind(hash.to_string())
        .bind(paths)
        .fetch_all(connection)
        .await?;
    let mut files = BTreeMap::new();
    for row in &rows {
        let mut fields = Fields::new(row, "skill_files");
        files.insert(fields.take("path")?, fields.take("content")?);
    }
    Ok(files)
}

fn current(row: &PgRow) -> Result<Option<(SkillHash, SkillSource)>> {
    let mut fields = Fields::new(row, "skills");
    let meant = (
        hash(&mut fields)?,
        fields.name("source", SkillSource::parse)?,
    );
    let listed: bool = fields.take("listed")?;
    Ok(listed.then_some(meant))
}

fn record(row: &PgRow) -> Result<SkillRecord> {
    read_record(&mut Fields::new(row, "skill_versions"))
}

/// Reads `name, hash, source, body, created_at`.
fn read_record(fields: &mut Fields<'_>) -> Result<SkillRecord> {
    Ok(SkillRecord {
        name: fields.take("name")?,
        hash: hash(fields)?,
        source: fields.name("source", SkillSource::parse)?,
        manifest: fields.json("body")?,
        created_at: fields.time("created_at")?,
    })
}

fn hash(fields: &mut Fields<'_>) -> Result<SkillHash> {
    fields.name("hash", |text| text.parse().ok())
}

/// Reads all skills, without the content of their files.
pub(crate) async fn dump(connection: &mut PgConnection) -> Done<Vec<DumpSkill>> {
    let mut skills: BTreeMap<(i32, String), DumpSkill> = BTreeMap::new();
    for row in &sql!("reads/dump_skills")
        .fetch_all(&mut *connection)
        .await?
    {
        let mut fields = Fields::new(row, "skills");
        let (tenant, name): (i32, String) = (fields.take("tenant")?, fields.take("name")?);
        let hash = hash(&mut fields)?;
        let listed: bool = fields.take("listed")?;
        let skill = DumpSkill {
            tenant: TenantId(tenant),
            name: name.clone(),
            current: listed.then_some(hash),
            versions: Vec::new(),
        };
        skills.insert((tenant, name), skill);
    }
    let rows = sql!("reads/dump_skill_versions");
    for row in &rows.fetch_all(&mut *connection).await? {
        let mut fields = Fields::new(row, "skill_versions");
        let tenant: i32 = fields.take("tenant")?;
        let record = read_record(&mut fields)?;
        if let Some(skill) = skills.get_mut(&(tenant, record.name.clone())) {
            skill.versions.push((record, BTreeMap::new()));
        }
    }
    for row in &sql!("reads/dump_skill_files").fetch_all(connection).await? {
        let mut fields = Fields::new(row, "skill_files");
        let slot = (fields.take("tenant")?, fields.take("name")?);
        let of = hash(&mut fields)?;
        let versions = skills.get_mut(&slot).map(|skill| &mut skill.versions);
        let mut versions = versions.into_iter().flatten();
        if let Some((_, files)) = versions.find(|(record, _)| record.hash == of) {
            let path = fields.take("path")?;
            let bytes: i64 = fields.take("bytes")?;
            files.insert(path, bytes.unsigned_abs());
        }
    }
    Ok(skills.into_values().collect())
}
