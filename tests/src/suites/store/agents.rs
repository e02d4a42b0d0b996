//! Agents by name.

use mainspring_shared::agent::{
    AgentKey, AgentLimits, AgentQuery, AgentRef, AgentSpec, AgentVersion, Alias, Bound, NamedAgent,
    SendOptions,
};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    AfterSend, AliasOutcome, IdempotencyKey, Inspect, ListAgentVersions, ListAgents, NewSession,
    PublishAgent, PublishOutcome, SetAlias,
};

use super::prelude::*;
use super::tenants::tenant;

/// The key of an agent of the default tenant.
pub(super) fn agent_key(name: &str) -> AgentKey {
    AgentKey {
        tenant: TenantId::DEFAULT,
        name: name.parse().expect("a name"),
    }
}

fn spec(prompt: &str) -> AgentSpec {
    AgentSpec {
        system_prompt: Some(prompt.to_owned()),
        ..AgentSpec::default()
    }
}

/// A spec to publish.
pub(super) fn publishing(name: &str, prompt: &str) -> PublishAgent {
    PublishAgent {
        key: agent_key(name),
        spec: spec(prompt),
        limits: None,
        idempotency: None,
    }
}

/// An alias to move.
pub(super) fn pointing(name: &str, alias: &str, version: Option<i32>) -> SetAlias {
    SetAlias {
        key: agent_key(name),
        alias: alias.parse().expect("an alias"),
        version,
    }
}

/// Publishes a spec; returns the version and whether it was added.
pub(super) async fn publish(
    store: &dyn Inspect,
    at: i64,
    name: &str,
    prompt: &str,
) -> (AgentVersion, bool) {
    let outcome = store
        .at(time(at))
        .publish_agent(publishing(name, prompt))
        .await;
    match outcome.expect("the store answers") {
        PublishOutcome::Published { version, added } => (*version, added),
        other => panic!("published, not {other:?}"),
    }
}

async fn point(
    store: &dyn Inspect,
    at: i64,
    (name, alias, version): (&str, &str, Option<i32>),
) -> AliasOutcome {
    let outcome = store
        .at(time(at))
        .set_alias(pointing(name, alias, version))
        .await;
    outcome.expect("the store answers")
}

async fn pointed(store: &dyn Inspect, at: i64, to: (&str, &str, Option<i32>)) -> NamedAgent {
    match point(store, at, to).await {
        AliasOutcome::Changed(agent) => *agent,
        other => panic!("changed, not {other:?}"),
    }
}

async fn archive(store: &dyn Inspect, at: i64, name: &str, archived: bool) -> Option<NamedAgent> {
    let outcome = store
        .at(time(at))
        .archive_agent(agent_key(name), archived)
        .await;
    outcome.expect("the store answers")
}

async fn read(store: &dyn Inspect, name: &str) -> Option<NamedAgent> {
    let found = store.get_agent(agent_key(name)).await;
    found.expect("the store answers")
}

async fn read_version(store: &dyn Inspect, name: &str, n: i32) -> Option<AgentVersion> {
    let found = store.get_agent_version(agent_key(name), n).await;
    found.expect("the store answers")
}

/// The version numbers that references resolve to; 0 for none.
async fn meant(store: &dyn Inspect, queries: &[&str]) -> Vec<i32> {
    let asked: Vec<AgentQuery> = queries
        .iter()
        .map(|text| text.parse().expect("a reference"))
        .collect();
    let found = store.find_agents(TenantId::DEFAULT, asked.clone()).await;
    let found = found.expect("the store answers");
    assert_eq!(found.len(), asked.len());
    for (query, found) in asked.iter().zip(&found) {
        assert!(found.as_ref().is_none_or(|one| one.key.name == query.name));
    }
    let numbers = found.into_iter().map(|one| one.map_or(0, |one| one.n));
    numbers.collect()
}

pub async fn a_published_spec_is_version_1(store: &dyn Inspect) {
    assert_eq!(read(store, "reviewer").await, None);
    let (version, added) = publish(store, 5, "reviewer", "Review.").await;
    assert!(added);
    let expected = AgentVersion {
        key: agent_key("reviewer"),
        n: 1,
        spec: spec("Review."),
        hash: spec("Review.").hash(),
        created_at: time(5),
    };
    assert_eq!(version, expected);
    assert_eq!(read_version(store, "reviewer", 1).await, Some(expected));
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!((agent.version, agent.aliases.len()), (1, 0));
    assert_eq!((agent.created_at, agent.updated_at), (time(5), time(5)));
    assert_eq!(agent.archived_at, None);
}

pub async fn a_spec_that_equals_the_newest_adds_no_version(store: &dyn Inspect) {
    let (first, _) = publish(store, 0, "reviewer", "Review.").await;
    let again = publish(store, 10, "reviewer", "Review.").await;
    assert_eq!(again, (first, false));
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!((agent.version, agent.updated_at), (1, time(0)));
}

pub async fn another_spec_is_the_next_version_and_leaves_the_one_before_as_it_was(
    store: &dyn Inspect,
) {
    let (first, _) = publish(store, 0, "reviewer", "Review.").await;
    let (second, added) = publish(store, 10, "reviewer", "Review well.").await;
    assert_eq!((second.n, added), (2, true));
    // Going back to the spec before the newest is a change again.
    let (third, added) = publish(store, 20, "reviewer", "Review.").await;
    assert_eq!((third.n, added), (3, true));
    assert_eq!(third.hash, first.hash);
    assert_eq!(read_version(store, "reviewer", 1).await, Some(first));
    assert_eq!(read_version(store, "reviewer", 2).await, Some(second));
    assert_eq!(read_version(store, "reviewer", 4).await, None);
    assert_eq!(read_version(store, "reviewer", 0).await, None);
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!((agent.created_at, agent.updated_at), (time(0), time(20)));
}

pub async fn limits_are_the_agents_and_stay_until_they_are_changed(store: &dyn Inspect) {
    let limits = |sends_open| AgentLimits {
        sends_open,
        ..AgentLimits::default()
    };
    let put = async |at, item: PublishAgent| {
        let outcome = store.at(time(at)).publish_agent(item).await;
        match outcome.expect("the store answers") {
            PublishOutcome::Published { version, added } => (version.n, added),
            other => panic!("published, not {other:?}"),
        }
    };
    let limited = async |tenant| {
        let limited = store.limited_agents(tenant).await;
        limited.expect("the store answers")
    };
    publish(store, 0, "other", "Do.").await;
    let with = |sends_open, prompt: &str| PublishAgent {
        limits: Some(limits(sends_open)),
        ..publishing("reviewer", prompt)
    };
    assert_eq!(put(1, with(Some(3), "Review.")).await, (1, true));
    let name = agent_key("reviewer").name;
    let expected = [(name.clone(), limits(Some(3)))];
    assert_eq!(limited(TenantId::DEFAULT).await, expected);
    assert_eq!(limited(TenantId(2)).await, []);
    // Publishing another version keeps the limits.
    publish(store, 2, "reviewer", "Review well.").await;
    assert_eq!(limited(TenantId::DEFAULT).await, expected);
    // Limits can change without a new version.
    assert_eq!(put(3, with(Some(4), "Review well.")).await, (2, false));
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!(agent.limits, limits(Some(4)));
    assert_eq!(agent.updated_at, time(3));
    assert_eq!(put(4, with(None, "Review well.")).await, (2, false));
    assert_eq!(limited(TenantId::DEFAULT).await, []);
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!(agent.limits, AgentLimits::default());
    // The seats of each agent are held under its own ID.
    assert_ne!(name.holder(), agent_key("other").name.holder());
}

pub async fn publishers_at_the_same_time_get_numbers_without_gaps(store: &dyn Inspect) {
    let published = (0..8).map(|n| async move {
        let (version, added) = publish(store, 0, "reviewer", &format!("Review {n}.")).await;
        assert!(added);
        version.n
    });
    let mut numbers = futures::future::join_all(published).await;
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!(agent.version, 8);
}

pub async fn a_repeat_under_a_key_names_what_the_first_request_led_to(store: &dyn Inspect) {
    let request = |body: u8, prompt: &str| PublishAgent {
        idempotency: Some(IdempotencyKey {
            tenant: TenantId::DEFAULT,
            route: "POST /v1/agents".to_owned(),
            key: "once".to_owned(),
            body_hash: [body; 32],
        }),
        ..publishing("reviewer", prompt)
    };
    let (first, _) = publish(store, 0, "reviewer", "Review.").await;
    let send = async |item: PublishAgent| {
        let outcome = store.at(time(5)).publish_agent(item).await;
        outcome.expect("the store answers")
    };
    let unchanged = PublishOutcome::Published {
        version: Box::new(first.clone()),
        added: false,
    };
    assert_eq!(send(request(1, "Review.")).await, unchanged);
    publish(store, 10, "reviewer", "Review well.").await;
    let replayed = PublishOutcome::Replayed {
        version: Box::new(first),
        added: false,
    };
    assert_eq!(send(request(1, "Review.")).await, replayed);
    assert_eq!(send(request(2, "Other.")).await, PublishOutcome::Mismatch);
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!(agent.version, 2);
}

pub async fn an_alias_moves_from_version_to_version(store: &dyn Inspect) {
    publish(store, 0, "reviewer", "Review.").await;
    publish(store, 1, "reviewer", "Review well.").await;
    let agent = pointed(store, 2, ("reviewer", "live", Some(1))).await;
    let live: Alias = "live".parse().expect("an alias");
    assert_eq!(agent.aliases.get(&live), Some(&1));
    assert_eq!(agent.updated_at, time(2));
    assert_eq!(meant(store, &["reviewer@live"]).await, [1]);
    let agent = pointed(store, 3, ("reviewer", "live", Some(2))).await;
    assert_eq!(read(store, "reviewer").await, Some(agent));
    assert_eq!(meant(store, &["reviewer@live"]).await, [2]);
    // Setting the same value again is not a change.
    let agent = pointed(store, 4, ("reviewer", "live", Some(2))).await;
    assert_eq!(agent.updated_at, time(3));
    let agent = pointed(store, 5, ("reviewer", "live", None)).await;
    assert_eq!((agent.aliases.len(), agent.updated_at), (0, time(5)));
    assert_eq!(meant(store, &["reviewer@live"]).await, [0]);
}

pub async fn an_alias_needs_an_agent_in_use_and_a_version_that_exists(store: &dyn Inspect) {
    let outcome = point(store, 0, ("reviewer", "live", Some(1))).await;
    assert_eq!(outcome, AliasOutcome::NotFound);
    publish(store, 0, "reviewer", "Review.").await;
    for n in [0, 2, -1] {
        let outcome = point(store, 1, ("reviewer", "live", Some(n))).await;
        assert_eq!(outcome, AliasOutcome::NoVersion, "{n}");
    }
    archive(store, 2, "reviewer", true).await;
    let outcome = point(store, 3, ("reviewer", "live", Some(1))).await;
    assert_eq!(outcome, AliasOutcome::NotFound);
}

pub async fn references_mean_the_newest_a_number_or_an_alias(store: &dyn Inspect) {
    for (at, prompt) in (0..).zip(["one", "two", "three"]) {
        publish(store, at, "reviewer", prompt).await;
    }
    publish(store, 5, "writer", "Write.").await;
    pointed(store, 6, ("reviewer", "live", Some(2))).await;
    pointed(store, 6, ("writer", "v9", Some(1))).await;
    let queries = [
        "writer",
        "reviewer",
        "reviewer@1",
        "reviewer@live",
        "reviewer@4",
        "reviewer@v9",
        "nobody",
        "writer@v9",
        "reviewer",
    ];
    assert_eq!(meant(store, &queries).await, [1, 3, 1, 2, 0, 0, 0, 1, 3]);
    assert_eq!(meant(store, &[]).await, [0; 0]);
}

pub async fn an_archived_agent_is_not_found_for_new_use_and_keeps_its_versions(
    store: &dyn Inspect,
) {
    assert_eq!(archive(store, 0, "reviewer", true).await, None);
    let (version, _) = publish(store, 0, "reviewer", "Review.").await;
    pointed(store, 1, ("reviewer", "live", Some(1))).await;
    let agent = archive(store, 2, "reviewer", true)
        .await
        .expect("it exists");
    assert_eq!((agent.archived_at, agent.updated_at), (at(2), time(2)));
    assert_eq!(agent.aliases.len(), 1);
    // Archiving twice has no further effect.
    let again = archive(store, 3, "reviewer", true).await;
    assert_eq!(again, Some(agent.clone()));
    assert_eq!(read(store, "reviewer").await, Some(agent));
    let queries = ["reviewer", "reviewer@1", "reviewer@live"];
    assert_eq!(meant(store, &queries).await, [0, 0, 0]);
    assert_eq!(read_version(store, "reviewer", 1).await, Some(version));
    let agent = archive(store, 4, "reviewer", false)
        .await
        .expect("it exists");
    assert_eq!((agent.archived_at, agent.updated_at), (None, time(4)));
    assert_eq!(meant(store, &queries).await, [1, 1, 1]);
}

pub async fn publishing_restores_an_archived_agent(store: &dyn Inspect) {
    publish(store, 0, "reviewer", "Review.").await;
    archive(store, 1, "reviewer", true).await;
    let (version, added) = publish(store, 2, "reviewer", "Review.").await;
    assert_eq!((version.n, added), (1, false));
    let agent = read(store, "reviewer").await.expect("it exists");
    assert_eq!((agent.archived_at, agent.updated_at), (None, time(2)));
    archive(store, 3, "reviewer", true).await;
    let (version, added) = publish(store, 4, "reviewer", "Review well.").await;
    assert_eq!((version.n, added), (2, true));
    assert_eq!(meant(store, &["reviewer"]).await, [2]);
}

async fn listed(
    store: &dyn Inspect,
    archived: bool,
    after: Option<&str>,
    limit: u32,
) -> (Vec<String>, bool) {
    let query = ListAgents {
        tenant: TenantId::DEFAULT,
        archived,
        after: after.map(|name| name.parse().expect("a name")),
        limit,
    };
    let page = store.list_agents(query).await.expect("the store answers");
    let shown = page.data.into_iter().map(|agent| {
        let aliases: Vec<String> = agent.aliases.keys().map(ToString::to_string).collect();
        format!("{} {}", agent.key.name, aliases.join(","))
    });
    (shown.collect(), page.more)
}

pub async fn agents_are_listed_by_name_page_by_page(store: &dyn Inspect) {
    for name in ["b", "Z", "a-1", "a", "a.1"] {
        publish(store, 0, name, "x").await;
    }
    pointed(store, 1, ("a", "live", Some(1))).await;
    pointed(store, 1, ("b", "beta", Some(1))).await;
    pointed(store, 1, ("b", "alpha", Some(1))).await;
    archive(store, 2, "a-1", true).await;
    let (names, more) = listed(store, false, None, 3).await;
    assert_eq!(names, ["Z ", "a live", "a.1 "]);
    assert!(more);
    let (names, more) = listed(store, false, Some("a.1"), 3).await;
    assert_eq!((names, more), (vec!["b alpha,beta".to_owned()], false));
    let (names, more) = listed(store, true, Some("a"), 2).await;
    assert_eq!(names, ["a-1 ", "a.1 "]);
    assert!(more);
}

pub async fn versions_are_listed_newest_first_page_by_page(store: &dyn Inspect) {
    for n in 1..=3 {
        publish(store, n, "reviewer", &format!("Review {n}.")).await;
    }
    let list = async |name: &str, before: Option<i32>, limit: u32| {
        let query = ListAgentVersions {
            key: agent_key(name),
            before,
            limit,
        };
        let page = store.list_agent_versions(query).await;
        let page = page.expect("the store answers");
        let numbers: Vec<i32> = page.data.iter().map(|version| version.n).collect();
        (numbers, page.more)
    };
    assert_eq!(list("reviewer", None, 2).await, (vec![3, 2], true));
    assert_eq!(list("reviewer", Some(2), 2).await, (vec![1], false));
    assert_eq!(list("nobody", None, 2).await, (vec![], false));
}

pub async fn an_agent_belongs_to_its_tenant(store: &dyn Inspect) {
    tenant(store, "blue").await;
    publish(store, 0, "reviewer", "Review.").await;
    pointed(store, 0, ("reviewer", "live", Some(1))).await;
    let other = TenantId(2);
    let query = "reviewer@live".parse().expect("a reference");
    let found = store.find_agents(other, vec![query]).await;
    assert_eq!(found.expect("the store answers"), [None]);
    let item = PublishAgent {
        key: AgentKey {
            tenant: other,
            ..agent_key("reviewer")
        },
        ..publishing("reviewer", "Another one.")
    };
    let outcome = store.at(time(1)).publish_agent(item).await;
    let outcome = outcome.expect("the store answers");
    assert!(
        matches!(outcome, PublishOutcome::Published { version, added: true } if version.n == 1)
    );
    let kept = read_version(store, "reviewer", 1).await.expect("it exists");
    assert_eq!(kept.spec, spec("Review."));
}

pub async fn a_session_keeps_which_version_it_took(store: &dyn Inspect) {
    let (version, _) = publish(store, 0, "reviewer", "Review.").await;
    let bound = Bound {
        agent: Some(version.reference()),
        ..Bound::default()
    };
    let new = NewSession {
        agent: AgentSpec {
            name: Some("reviewer".to_owned()),
            bound: Some(Box::new(bound)),
            ..version.spec
        },
        ..new_session(1)
    };
    let created = store.at(time(1)).create_sessions(vec![(new, None)]).await;
    created.expect("the store answers");
    publish(store, 2, "reviewer", "Review well.").await;
    let session = store.get_session(key(1)).await.expect("the store answers");
    let agent = session.expect("it exists").agent;
    let taken = AgentRef {
        name: "reviewer".parse().expect("a name"),
        version: 1,
    };
    assert_eq!(agent.bound.and_then(|bound| bound.agent), Some(taken));
    assert_eq!(agent.system_prompt.as_deref(), Some("Review."));
}

pub async fn a_send_is_run_with_its_own_agent_and_the_next_one_with_the_sessions(
    store: &dyn Inspect,
) {
    let own = |prompt: &str| SendOptions {
        agent: Some(Box::new(spec(prompt))),
        ..SendOptions::default()
    };
    let opening = opening(1, 1);
    accept(store, 0, with(opening, own("Review."))).await;
    accept(store, 1, with(sending(2, 1), own("Review well."))).await;
    accept(store, 2, sending(3, 1)).await;
    register(store, 1).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    let prompt = |agent: &AgentSpec| agent.system_prompt.clone();
    assert_eq!(prompt(&claimed.send.agent).as_deref(), Some("Review."));
    assert_eq!(claimed.send.record.agent_version, Some(1));
    let next = complete(store, 20, ending(&claimed, AfterSend::Continue))
        .await
        .next;
    let (next, _) = next.expect("send 2 is next");
    assert_eq!(prompt(&next.agent).as_deref(), Some("Review well."));
    let item = ending_of(&claimed, &next.record, AfterSend::Continue);
    let next = complete(store, 30, item).await.next;
    let (next, _) = next.expect("send 3 is next");
    assert_eq!(next.agent, new_session(1).agent);
    let session = store.get_session(key(1)).await.expect("the store answers");
    let session = session.expect("it exists");
    assert_eq!(
        (session.agent, session.agent_version),
        (new_session(1).agent, 1)
    );
}
