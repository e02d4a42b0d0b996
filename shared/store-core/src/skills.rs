//! Skills.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{
    BrokenSkill, SkillFault, SkillHash, SkillRecord, SkillRef, SkillSource,
};
use mainspring_shared::store::{
    self, DumpSkill, ListSkills, Page, PublishSkill, PublishSkillOutcome, SKILL_VERSIONS_MAX,
    SkillVersion, Skills, takes_name,
};

use crate::accept::{self, Seen};
use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::statement;
use crate::reads::page;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};

#[async_trait]
impl Skills for SqlStore {
    async fn publish_skill(&self, item: PublishSkill) -> store::Result<PublishSkillOutcome> {
        self.write(item, |tx, item| Box::pin(publish(tx, item)))
            .await
    }

    async fn note_broken_skill(
        &self,
        tenant: TenantId,
        folder: String,
        faults: Vec<SkillFault>,
    ) -> store::Result<()> {
        let item = (tenant, folder, faults);
        self.write(item, |tx, (tenant, folder, faults)| {
            Box::pin(async move {
                let now = tx.now;
                statement(sql!("skills/note_broken"))
                    .bind(tenant.0)
                    .bind(folder)
                    .bind(json(&faults)?)
                    .bind(now.0)
                    .execute(tx.conn())
                    .await?;
                Ok(())
            })
        })
        .await
    }

    async fn remove_skill(
        &self,
        tenant: TenantId,
        name: String,
        versions: bool,
    ) -> store::Result<bool> {
        let item = (tenant, name, versions);
        self.write(item, |tx, (tenant, name, versions)| {
            Box::pin(remove(tx, tenant, name, versions))
        })
        .await
    }

    async fn find_skills(
        &self,
        tenant: TenantId,
        refs: Vec<SkillRef>,
    ) -> store::Result<Vec<Option<SkillRecord>>> {
        self.read(|conn| Box::pin(find(conn, tenant, refs))).await
    }

    async fn list_skills(&self, query: ListSkills) -> store::Result<Page<SkillRecord>> {
        self.read(|conn| Box::pin(list(conn, query))).await
    }

    async fn skill_versions(
        &self,
        tenant: TenantId,
        name: String,
    ) -> store::Result<Vec<SkillVersion>> {
        self.read(|conn| Box::pin(versions(conn, tenant, name)))
            .await
    }

    async fn broken_skills(&self, tenant: TenantId) -> store::Result<Vec<BrokenSkill>> {
        self.read(|conn| Box::pin(broken(conn, tenant))).await
    }

    async fn read_skill_files(
        &self,
        tenant: TenantId,
        name: String,
        hash: SkillHash,
        paths: Vec<String>,
    ) -> store::Result<BTreeMap<String, Vec<u8>>> {
        self.read(|conn| Box::pin(files(conn, tenant, name, hash, paths)))
            .await
    }
}

async fn publish(tx: &mut Tx, item: PublishSkill) -> Result<PublishSkillOutcome> {
    if let Some(key) = &item.idempotency {
        match accept::seen(tx, key).await? {
            Seen::Never => accept::remember(tx, key, item.resource()).await?,
            Seen::Before(_) => return Ok(PublishSkillOutcome::Replayed),
            Seen::OtherBody => return Ok(PublishSkillOutcome::Mismatch),
        }
    }
    let (tenant, now) = (item.tenant.0, tx.now);
    let (name, hash) = (&item.skill.name, item.skill.hash);
    let text = hash.to_string();
    statement(sql!("skills/lock"))
        .bind(tenant)
        .bind(name)
        .bind(&text)
        .bind(item.source.as_str())
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let before = statement(sql!("skills/current"))
        .bind(tenant)
        .bind(name)
        .fetch_one(tx.conn())
        .await?;
    let before = current(&before)?;
    let known = statement(sql!("skills/known"))
        .bind(tenant)
        .bind(name)
        .bind(&text)
        .fetch_optional(tx.conn())
        .await?;
    let created = known.is_none();
    if created {
        store(tx, &item).await?;
    }
    let takes = takes_name(before.map(|(_, source)| source), item.source);
    if takes {
        statement(sql!("skills/save"))
            .bind(tenant)
            .bind(name)
            .bind(&text)
            .bind(item.source.as_str())
            .bind(now.0)
            .execute(tx.conn())
            .await?;
    }
    if item.source == SkillSource::Mounted {
        mend(tx, item.tenant, name).await?;
    }
    Ok(PublishSkillOutcome::Published {
        created,
        current: takes || before.map(|(current, _)| current) == Some(hash),
    })
}

async fn store(tx: &mut Tx, item: &PublishSkill) -> Result<()> {
    let record = item.record(tx.now);
    let hash = record.hash.to_string();
    statement(sql!("skills/insert"))
        .bind(item.tenant.0)
        .bind(&record.name)
        .bind(&hash)
        .bind(record.source.as_str())
        .bind(json(&record.manifest)?)
        .bind(record.created_at.0)
        .execute(tx.conn())
        .await?;
    for (path, content) in &item.skill.files {
        statement(sql!("skills/insert_file"))
            .bind(item.tenant.0)
            .bind(&record.name)
            .bind(&hash)
            .bind(path)
            .bind(content.clone())
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

async fn mend(tx: &mut Tx, tenant: TenantId, folder: &str) -> Result<bool> {
    let done = statement(sql!("skills/mend"))
        .bind(tenant.0)
        .bind(folder)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

async fn remove(tx: &mut Tx, tenant: TenantId, name: String, versions: bool) -> Result<bool> {
    let mended = mend(tx, tenant, &name).await?;
    let now = tx.now;
    let unlisted = statement(sql!("skills/unlist"))
        .bind(tenant.0)
        .bind(&name)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let mut gone = mended || unlisted.rows_affected() > 0;
    if versions {
        for sql in [
            sql!("skills/forget"),
            sql!("skills/forget_files"),
            sql!("skills/forget_versions"),
        ] {
            let done = statement(sql)
                .bind(tenant.0)
                .bind(&name)
                .execute(tx.conn())
                .await?;
            gone |= done.rows_affected() > 0;
        }
    }
    Ok(gone)
}

async fn find(
    conn: &mut Conn,
    tenant: TenantId,
    refs: Vec<SkillRef>,
) -> Result<Vec<Option<SkillRecord>>> {
    let mut found = Vec::with_capacity(refs.len());
    for wanted in refs {
        let query = match wanted.hash {
            None => statement(sql!("skills/find"))
                .bind(tenant.0)
                .bind(&wanted.name),
            Some(hash) => statement(sql!("skills/version"))
                .bind(tenant.0)
                .bind(&wanted.name)
                .bind(hash.to_string()),
        };
        let row = query.fetch_optional(&mut *conn).await?;
        found.push(row.as_ref().map(record).transpose()?);
    }
    Ok(found)
}

async fn list(conn: &mut Conn, query: ListSkills) -> Result<Page<SkillRecord>> {
    let rows = statement(sql!("skills/list"))
        .bind(query.tenant.0)
        .bind(query.after.unwrap_or_default())
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, record))
}

async fn versions(conn: &mut Conn, tenant: TenantId, name: String) -> Result<Vec<SkillVersion>> {
    let rows = statement(sql!("skills/versions"))
        .bind(tenant.0)
        .bind(name)
        .bind(SKILL_VERSIONS_MAX)
        .fetch_all(conn)
        .await?;
    let version = |row: &Row| {
        let mut cells = Cells::new(row, "skill_versions");
        Ok(SkillVersion {
            hash: hash(&mut cells)?,
            source: cells.word("source", SkillSource::parse)?,
            created_at: cells.time("created_at")?,
        })
    };
    rows.iter().map(version).collect()
}

async fn broken(conn: &mut Conn, tenant: TenantId) -> Result<Vec<BrokenSkill>> {
    let rows = statement(sql!("skills/broken"))
        .bind(tenant.0)
        .fetch_all(conn)
        .await?;
    let broken = |row: &Row| {
        let mut cells = Cells::new(row, "skill_faults");
        Ok(BrokenSkill {
            folder: cells.get("folder")?,
            faults: cells.json("faults")?,
            seen_at: cells.time("seen_at")?,
        })
    };
    rows.iter().map(broken).collect()
}

async fn files(
    conn: &mut Conn,
    tenant: TenantId,
    name: String,
    hash: SkillHash,
    paths: Vec<String>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let hash = hash.to_string();
    let mut files = BTreeMap::new();
    for path in paths {
        let row = statement(sql!("skills/file"))
            .bind(tenant.0)
            .bind(&name)
            .bind(&hash)
            .bind(&path)
            .fetch_optional(&mut *conn)
            .await?;
        if let Some(row) = row {
            let content = Cells::new(&row, "skill_files").get("content")?;
            files.insert(path, content);
        }
    }
    Ok(files)
}

fn current(row: &Row) -> Result<Option<(SkillHash, SkillSource)>> {
    let mut cells = Cells::new(row, "skills");
    let meant = (hash(&mut cells)?, cells.word("source", SkillSource::parse)?);
    let listed: bool = cells.get("listed")?;
    Ok(listed.then_some(meant))
}

fn record(row: &Row) -> Result<SkillRecord> {
    let mut cells = Cells::new(row, "skill_versions");
    Ok(SkillRecord {
        name: cells.get("name")?,
        hash: hash(&mut cells)?,
        source: cells.word("source", SkillSource::parse)?,
        manifest: cells.json("body")?,
        created_at: cells.time("created_at")?,
    })
}

fn hash(cells: &mut Cells<'_>) -> Result<SkillHash> {
    cells.word("hash", |text| text.parse().ok())
}

/// All skills, without their files' contents.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<DumpSkill>> {
    let mut skills: BTreeMap<(i32, String), DumpSkill> = BTreeMap::new();
    let rows = statement(sql!("skills/dump")).fetch_all(&mut *conn).await?;
    for row in &rows {
        let (tenant, name) = slot(row)?;
        let skill = DumpSkill {
            tenant: TenantId(tenant),
            name: name.clone(),
            current: current(row)?.map(|(hash, _)| hash),
            versions: Vec::new(),
        };
        skills.insert((tenant, name), skill);
    }
    let rows = statement(sql!("skills/dump_versions"));
    for row in &rows.fetch_all(&mut *conn).await? {
        if let Some(skill) = skills.get_mut(&slot(row)?) {
            skill.versions.push((record(row)?, BTreeMap::new()));
        }
    }
    let rows = statement(sql!("skills/dump_files"));
    for row in &rows.fetch_all(conn).await? {
        let mut cells = Cells::new(row, "skill_files");
        let of = hash(&mut cells)?;
        let versions = skills.get_mut(&slot(row)?).map(|skill| &mut skill.versions);
        let mut versions = versions.into_iter().flatten();
        if let Some((_, files)) = versions.find(|(record, _)| record.hash == of) {
            let bytes: i64 = cells.get("bytes")?;
            files.insert(cells.get("path")?, bytes.unsigned_abs());
        }
    }
    Ok(skills.into_values().collect())
}

fn slot(row: &Row) -> Result<(i32, String)> {
    let mut cells = Cells::new(row, "skills");
    Ok((cells.get("tenant")?, cells.get("name")?))
}
