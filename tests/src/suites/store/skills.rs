//! Skills and their versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{
    SKILL_FILE, Skill, SkillFault, SkillHash, SkillRecord, SkillRef, SkillSource,
};
use mainspring_shared::store::{
    IdempotencyKey, Inspect, ListSkills, PublishSkill, PublishSkillOutcome,
};

use super::prelude::*;

const TENANT: TenantId = TenantId::DEFAULT;

/// A skill whose text sets it apart from others of the same name.
pub fn skill(name: &str, text: &str) -> Arc<Skill> {
    let front = format!("---\nname: {name}\ndescription: \"Does {text} \u{1f980}\"\n---\n{text}\n");
    let files = BTreeMap::from([
        (SKILL_FILE.to_owned(), front.into_bytes()),
        (
            "scripts/run.sh".to_owned(),
            b"#!/bin/sh\necho \x00\xff\n".to_vec(),
        ),
        ("empty".to_owned(), Vec::new()),
    ]);
    Arc::new(Skill::read(None, files).expect("a skill"))
}

pub fn uploaded(skill: &Arc<Skill>) -> PublishSkill {
    PublishSkill {
        tenant: TENANT,
        skill: skill.clone(),
        source: SkillSource::Uploaded,
        idempotency: None,
    }
}

fn mounted(skill: &Arc<Skill>) -> PublishSkill {
    PublishSkill {
        source: SkillSource::Mounted,
        ..uploaded(skill)
    }
}

async fn publish(store: &dyn Inspect, ms: i64, item: PublishSkill) -> PublishSkillOutcome {
    let outcome = store.at(time(ms)).publish_skill(item).await;
    outcome.expect("the store answers")
}

const fn published(created: bool, current: bool) -> PublishSkillOutcome {
    PublishSkillOutcome::Published { created, current }
}

async fn find(store: &dyn Inspect, name: &str, hash: Option<SkillHash>) -> Option<SkillRecord> {
    let wanted = SkillRef {
        name: name.to_owned(),
        hash,
    };
    let found = store.find_skills(TENANT, vec![wanted]).await;
    found.expect("the store answers").pop().flatten()
}

async fn means(store: &dyn Inspect, name: &str) -> Option<SkillHash> {
    find(store, name, None).await.map(|record| record.hash)
}

async fn listed(store: &dyn Inspect, after: Option<&str>, limit: u32) -> (Vec<String>, bool) {
    let query = ListSkills {
        tenant: TENANT,
        after: after.map(str::to_owned),
        limit,
    };
    let page = store.list_skills(query).await.expect("the store answers");
    let names = page.data.into_iter().map(|record| record.name);
    (names.collect(), page.more)
}

pub async fn a_published_skill_is_found_and_read_as_it_was(store: &dyn Inspect) {
    let one = skill("one", "this");
    assert_eq!(
        publish(store, 10, uploaded(&one)).await,
        published(true, true)
    );
    let record = find(store, "one", None).await.expect("is listed");
    let expected = SkillRecord {
        name: "one".to_owned(),
        hash: one.hash,
        source: SkillSource::Uploaded,
        manifest: one.manifest.clone(),
        created_at: time(10),
    };
    assert_eq!(record, expected);
    assert_eq!(find(store, "one", Some(one.hash)).await, Some(expected));
    assert_eq!(find(store, "two", None).await, None);
    let other = SkillHash::of_file(b"");
    assert_eq!(find(store, "one", Some(other)).await, None);
    let paths = one.files.keys().cloned().chain(["none".to_owned()]);
    let files = store.read_skill_files(TENANT, "one".to_owned(), one.hash, paths.collect());
    assert_eq!(files.await.expect("the store answers"), one.files);
    let paths = vec![SKILL_FILE.to_owned()];
    let files = store.read_skill_files(TENANT, "one".to_owned(), other, paths);
    assert_eq!(files.await.expect("the store answers"), BTreeMap::new());
}

pub async fn a_name_means_the_version_that_was_published_last(store: &dyn Inspect) {
    let (old, new) = (skill("a", "old"), skill("a", "new"));
    assert_eq!(
        publish(store, 10, uploaded(&old)).await,
        published(true, true)
    );
    assert_eq!(
        publish(store, 20, uploaded(&old)).await,
        published(false, true)
    );
    assert_eq!(
        publish(store, 30, uploaded(&new)).await,
        published(true, true)
    );
    assert_eq!(means(store, "a").await, Some(new.hash));
    let kept = find(store, "a", Some(old.hash)).await.expect("is kept");
    assert_eq!(kept.created_at, time(10));
    let versions = store.skill_versions(TENANT, "a".to_owned()).await;
    let versions = versions.expect("the store answers");
    let hashes: Vec<_> = versions.iter().map(|version| version.hash).collect();
    assert_eq!(hashes, [new.hash, old.hash]);
    // Back to the old one.
    assert_eq!(
        publish(store, 40, uploaded(&old)).await,
        published(false, true)
    );
    assert_eq!(means(store, "a").await, Some(old.hash));
}

pub async fn a_mounted_skill_does_not_replace_an_uploaded_one(store: &dyn Inspect) {
    let (first, second, own) = (skill("a", "1"), skill("a", "2"), skill("a", "own"));
    assert_eq!(
        publish(store, 10, mounted(&first)).await,
        published(true, true)
    );
    assert_eq!(
        publish(store, 20, mounted(&second)).await,
        published(true, true)
    );
    assert_eq!(
        publish(store, 30, uploaded(&own)).await,
        published(true, true)
    );
    assert_eq!(
        publish(store, 40, mounted(&second)).await,
        published(false, false)
    );
    assert_eq!(means(store, "a").await, Some(own.hash));
    assert!(find(store, "a", Some(second.hash)).await.is_some());
    // Without the upload, the mounted version applies again.
    let removed = store.remove_skill(TENANT, "a".to_owned(), false).await;
    assert!(removed.expect("the store answers"));
    assert_eq!(
        publish(store, 50, mounted(&second)).await,
        published(false, true)
    );
    assert_eq!(means(store, "a").await, Some(second.hash));
}

pub async fn a_removed_skill_stays_for_those_who_have_it(store: &dyn Inspect) {
    let (old, new) = (skill("a", "old"), skill("a", "new"));
    publish(store, 10, uploaded(&old)).await;
    publish(store, 20, uploaded(&new)).await;
    let remove = async |versions| {
        let removed = store.remove_skill(TENANT, "a".to_owned(), versions).await;
        removed.expect("the store answers")
    };
    assert!(remove(false).await);
    assert!(!remove(false).await);
    assert_eq!(means(store, "a").await, None);
    assert_eq!(listed(store, None, 10).await.0, [""; 0]);
    assert!(find(store, "a", Some(old.hash)).await.is_some());
    assert!(remove(true).await);
    assert!(!remove(true).await);
    assert_eq!(find(store, "a", Some(old.hash)).await, None);
    let paths = vec![SKILL_FILE.to_owned()];
    let files = store.read_skill_files(TENANT, "a".to_owned(), old.hash, paths);
    assert!(files.await.expect("the store answers").is_empty());
    // The name can be reused, and so can the content.
    assert_eq!(
        publish(store, 30, uploaded(&old)).await,
        published(true, true)
    );
    // The same for all versions at once.
    assert!(remove(true).await);
    assert_eq!(means(store, "a").await, None);
}

pub async fn a_key_publishes_once(store: &dyn Inspect) {
    let (old, new) = (skill("a", "old"), skill("a", "new"));
    let keyed = |skill: &Arc<Skill>, hash: u8| PublishSkill {
        idempotency: Some(IdempotencyKey {
            tenant: TENANT,
            route: "POST /v1/skills".to_owned(),
            key: "k".to_owned(),
            body_hash: [hash; 32],
        }),
        ..uploaded(skill)
    };
    assert_eq!(
        publish(store, 10, keyed(&old, 1)).await,
        published(true, true)
    );
    publish(store, 20, uploaded(&new)).await;
    // A repeat does not bring back the old version.
    assert_eq!(
        publish(store, 30, keyed(&old, 1)).await,
        PublishSkillOutcome::Replayed
    );
    assert_eq!(
        publish(store, 30, keyed(&new, 2)).await,
        PublishSkillOutcome::Mismatch
    );
    assert_eq!(means(store, "a").await, Some(new.hash));
}

pub async fn publications_at_the_same_time_make_one_version(store: &dyn Inspect) {
    let one = skill("a", "same");
    let outcomes = join_all((0..8).map(|_| publish(store, 10, uploaded(&one)))).await;
    let created = outcomes
        .iter()
        .filter(|outcome| **outcome == published(true, true));
    assert_eq!(created.count(), 1, "{outcomes:?}");
    let others = outcomes
        .iter()
        .filter(|outcome| **outcome == published(false, true));
    assert_eq!(others.count(), 7, "{outcomes:?}");
    let paths = one.files.keys().cloned().collect();
    let files = store.read_skill_files(TENANT, "a".to_owned(), one.hash, paths);
    assert_eq!(files.await.expect("the store answers"), one.files);
}

pub async fn a_broken_skill_is_noted_until_it_is_mended(store: &dyn Inspect) {
    let faults = |text: &str| vec![SkillFault::of(SKILL_FILE, text)];
    let note = async |ms, folder: &str, text: &str| {
        let store = store.at(time(ms));
        let noted = store.note_broken_skill(TENANT, folder.to_owned(), faults(text));
        noted.await.expect("the store answers");
    };
    note(10, "b", "first").await;
    note(20, "a", "is missing \u{1f980}").await;
    note(30, "b", "second").await;
    let broken = store
        .broken_skills(TENANT)
        .await
        .expect("the store answers");
    let seen: Vec<_> = broken
        .iter()
        .map(|b| (b.folder.as_str(), b.seen_at))
        .collect();
    assert_eq!(seen, [("a", time(20)), ("b", time(30))]);
    assert_eq!(broken[1].faults, faults("second"));
    publish(store, 40, mounted(&skill("b", "whole"))).await;
    let removed = store.remove_skill(TENANT, "a".to_owned(), false).await;
    assert!(removed.expect("the store answers"));
    let broken = store
        .broken_skills(TENANT)
        .await
        .expect("the store answers");
    assert_eq!(broken, []);
}

pub async fn skills_are_listed_by_name_in_pages(store: &dyn Inspect) {
    for (place, name) in ["c", "a", "b-2", "b"].into_iter().enumerate() {
        publish(store, place as i64, uploaded(&skill(name, "x"))).await;
    }
    assert_eq!(
        listed(store, None, 10).await,
        (
            vec!["a".into(), "b".into(), "b-2".into(), "c".into()],
            false
        )
    );
    assert_eq!(
        listed(store, None, 2).await,
        (vec!["a".into(), "b".into()], true)
    );
    assert_eq!(
        listed(store, Some("b"), 2).await,
        (vec!["b-2".into(), "c".into()], false)
    );
}

pub async fn skills_belong_to_one_tenant(store: &dyn Inspect) {
    let one = skill("a", "x");
    publish(store, 10, uploaded(&one)).await;
    let other = TenantId(TENANT.0 + 1);
    let wanted = || SkillRef {
        name: "a".to_owned(),
        hash: None,
    };
    let found = store.find_skills(other, vec![wanted(), wanted()]).await;
    assert_eq!(found.expect("the store answers"), [None, None]);
    let paths = vec![SKILL_FILE.to_owned()];
    let files = store.read_skill_files(other, "a".to_owned(), one.hash, paths);
    assert!(files.await.expect("the store answers").is_empty());
    let removed = store.remove_skill(other, "a".to_owned(), true).await;
    assert!(!removed.expect("the store answers"));
    assert_eq!(means(store, "a").await, Some(one.hash));
}
