//! Skills.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{
    BrokenSkill, SkillFault, SkillHash, SkillRecord, SkillRef, SkillSource,
};
use mainspring_shared::store::{
    ListSkills, Page, PublishSkill, PublishSkillOutcome, Result, SKILL_VERSIONS_MAX, SkillVersion,
    Skills, takes_name,
};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::columns::{json, text};
use crate::ledger::now;
use crate::retry::{Attempts, Fault, Verdict, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

type Done<T> = std::result::Result<T, Fault>;

/// Runs work until the database decides on it. Each of these steps can be repeated: a version that was
/// stored by an attempt whose commit is in doubt is found by the next one.
macro_rules! repeated {
    ($pool:expr, $work:expr) => {{
        let mut attempts = Attempts::default();
        loop {
            match attempts.on($pool, $work).await {
                Ok(done) => return Ok(done),
                Err(fault) => match attempts.weigh(fault)? {
                    Verdict::Again | Verdict::Lost => {}
                    Verdict::BadData(error) => return Err(error),
                },
            }
        }
    }};
}

#[async_trait]
impl Skills for PostgresStore {
    async fn publish_skill(&self, item: PublishSkill) -> Result<PublishSkillOutcome> {
        repeated!(&self.pools.writers, async |connection| {
            publish(connection, self.at, &item).await
        })
    }

    async fn note_broken_skill(
        &self,
        tenant: TenantId,
        folder: String,
        faults: Vec<SkillFault>,
    ) -> Result<()> {
        repeated!(&self.pools.writers, async |connection| {
            let seen_at = now(connection, self.at).await?;
            sql!("skills/note_broken")
                .bind(tenant.0)
                .bind(text(&folder).into_owned())
                .bind(json(&faults))
                .bind(seen_at.0)
                .execute(connection)
                .await?;
            Ok(())
        })
    }

    async fn remove_skill(&self, tenant: TenantId, name: String, versions: bool) -> Result<bool> {
        repeated!(&self.pools.writers, async |connection| {
            remove(connection, self.at, tenant, &name, versions).await
        })
    }

    async fn find_skills(
        &self,
        tenant: TenantId,
        refs: Vec<SkillRef>,
    ) -> Result<Vec<Option<SkillRecord>>> {
        repeated!(&self.pools.readers, async |connection| {
            find(connection, tenant, &refs).await
        })
    }

    async fn list_skills(&self, query: ListSkills) -> Result<Page<SkillRecord>> {
        repeated!(&self.pools.readers, async |connection| {
            list(connection, &query).await
        })
    }

    async fn skill_versions(&self, tenant: TenantId, name: String) -> Result<Vec<SkillVersion>> {
        repeated!(&self.pools.readers, async |connection| {
            versions(connection, tenant, &name).await
        })
    }

    async fn broken_skills(&self, tenant: TenantId) -> Result<Vec<BrokenSkill>> {
        repeated!(&self.pools.readers, async |connection| {
            broken(connection, tenant).await
        })
    }

    async fn read_skill_files(
        &self,
        tenant: TenantId,
        name: String,
        hash: SkillHash,
        paths: Vec<String>,
    ) -> Result<BTreeMap<String, Vec<u8>>> {
        repeated!(&self.pools.readers, async |connection| {
            files(connection, (tenant, &name, hash), &paths).await
        })
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
        let row = sql!("ledger/take_key")
            .bind(at.map(|at| at.0))
            .bind(key.tenant.0)
            .bind(text(&key.route).into_owned())
            .bind(text(&key.key).into_owned())
            .bind(key.body_hash.to_vec())
            .bind(item.resource())
            .fetch_one(&mut *tx)
            .await?;
        let mut fields = Fields::new(&row, "idempotency_keys");
        let hash: &[u8] = fields.take("body_hash")?;
        match (hash == key.body_hash, fields.take("taken")?) {
            (true, true) => {}
            (true, false) => return Ok(PublishSkillOutcome::Replayed),
            (false, _) => return Ok(PublishSkillOutcome::Mismatch),
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
    let mut found = Vec::with_capacity(refs.len());
    for wanted in refs {
        let query = match wanted.hash {
            None => sql!("skills/find").bind(tenant.0).bind(wanted.name.clone()),
            Some(hash) => sql!("skills/version")
                .bind(tenant.0)
                .bind(wanted.name.clone())
                .bind(hash.to_string()),
        };
        let row = query.fetch_optional(&mut *connection).await?;
        found.push(row.as_ref().map(record).transpose()?);
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
    let limit = query.limit as usize;
    let read = rows.iter().take(limit).map(record);
    let read =
        read.map(|row| row.inspect_err(|error| tracing::error!(%error, "a row is left out")));
    Ok(Page {
        data: read.filter_map(Result::ok).collect(),
        more: rows.len() > limit,
    })
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
    let mut fields = Fields::new(row, "skill_versions");
    Ok(SkillRecord {
        name: fields.take("name")?,
        hash: hash(&mut fields)?,
        source: fields.name("source", SkillSource::parse)?,
        manifest: fields.json("body")?,
        created_at: fields.time("created_at")?,
    })
}

fn hash(fields: &mut Fields<'_>) -> Result<SkillHash> {
    fields.name("hash", |text| text.parse().ok())
}
