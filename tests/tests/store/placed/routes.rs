//! Routing: a tenant's rows go to its database; rows of no tenant, or of all, are found wherever
//! they are.

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::pause::PauseKey;
use mainspring_shared::store::placements::Placements as _;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AuditKind, AuditOptions, AuditPiece, AuditPlace, ListPauses, NewPause, Renewal,
    SweepReady, TenantPatch, UpdateTenantOutcome, scoped,
};
use mainspring_shared::tenant::Limits;
use mainspring_store_postgres::Settings;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::placed::world::{
    NAMES, TTL, accept, answer, claim, cold, id, moment, new_boot, settings, to, together,
    with_world, with_world_of,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_three_tenants_has_a_part_on_each_database() {
    with_world("groups", async |world| {
        let mut tenants = Vec::new();
        for place in NAMES {
            let tenant = world.tenant(&format!("of-{place}")).await;
            assert_eq!(world.take(tenant, place).await.placement.place, place);
            tenants.push(tenant);
        }
        let boot = world.boot().await;
        let mut keys: Vec<SessionKey> = Vec::new();
        for tenant in tenants.iter().cycle().take(9) {
            keys.push(world.session(*tenant).await);
        }
        let items: Vec<_> = keys.iter().map(|key| to(*key)).collect();
        let sends: Vec<_> = items
            .iter()
            .map(|it| (it.target.key().tenant, it.id))
            .collect();
        let accepted = world.placed.accept_sends(boot, items).await;
        let accepted = accepted.expect("accepts");
        assert!(
            accepted
                .iter()
                .all(|it| matches!(it, AcceptOutcome::Accepted(_)))
        );
        // Each session is where its tenant is, and nowhere else.
        for (place, tenant) in NAMES.into_iter().zip(&tenants) {
            for other in NAMES {
                let rows = world.rows(other, *tenant).await;
                assert_eq!(rows > 0, place == other, "{tenant} on {other}");
            }
        }
        let ready = SweepReady {
            pool: None,
            older_than_ms: 0,
            after: None,
            limit: 5,
        };
        let first = world
            .placed
            .sweep_ready(ready.clone())
            .await
            .expect("sweeps");
        assert_eq!(first.sessions.len(), 5);
        let after = first.next;
        let rest = SweepReady { after, ..ready };
        let rest = world.placed.sweep_ready(rest).await.expect("sweeps");
        let found = first.sessions.iter().chain(&rest.sessions);
        let found: BTreeSet<SessionKey> = found.map(|it| it.key).collect();
        assert_eq!(found, keys.iter().copied().collect());

        let claims = keys.iter().map(|key| cold(*key)).collect();
        let claimed = world
            .placed
            .claim_sessions(boot, claims)
            .await
            .expect("claims");
        let ends = claimed.iter().map(|outcome| match outcome {
            mainspring_shared::store::ClaimOutcome::Claimed(claimed) => answer(claimed),
            other => panic!("not claimed: {other:?}"),
        });
        let ends = ends.collect::<Vec<_>>();
        // Outcomes are in the order of the items.
        assert!(ends.iter().zip(&keys).all(|(end, key)| end.key == *key));
        let ended = world.placed.complete_sends(ends).await.expect("completes");
        assert_eq!(ended.len(), 9);
        let read = world.placed.get_sends(sends).await.expect("reads");
        let done = read.iter().flatten();
        assert_eq!(done.filter(|send| send.finished_at.is_some()).count(), 9);
        world.assert_sound().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_has_its_lease_everywhere_and_where_it_died_a_new_one() {
    with_world("leases", async |world| {
        let tenant = world.tenant("away").await;
        world.take(tenant, "b").await;
        let boot = world.boot().await;
        let key = world.session(tenant).await;
        accept(&world.placed, key).await;
        let claimed = claim(&world.placed, boot, key).await;
        // As another process does when it finds that the lease has expired.
        world.stores["b"].stop_boot(boot).await.expect("stops");
        let renewed = world.placed.renew_boot(boot, TTL, 1).await.expect("renews");
        assert!(
            matches!(renewed, Renewal::Renewed { .. }),
            "it lives at home"
        );
        let lives = async || {
            let boots = world.stores["b"].list_boots().await.expect("lists");
            boots.iter().any(|it| it.id == boot && it.dead_at.is_none())
        };
        while !lives().await {
            moment().await;
        }
        // A session that it held there before has to be claimed again, by it or by another.
        let ended = world.placed.complete_sends(vec![answer(&claimed)]).await;
        let ended = ended.expect("answers").remove(0);
        assert_eq!(ended, mainspring_shared::store::CompleteOutcome::LeaseLost);
        let claimed = claim(&world.placed, boot, key).await;
        // A renewal tells it of a cancel, even if that is the only request it makes.
        let running = vec![(tenant, claimed.send.record.id)];
        let cancelled = world.placed.cancel_sends(BootId(id()), running).await;
        cancelled.expect("cancels");
        let renewed = together(&world.stores).renew_boot(boot, TTL, 1).await;
        let Renewal::Renewed { signals, .. } = renewed.expect("renews") else {
            panic!("it lives");
        };
        assert_eq!(signals.len(), 1);
        assert_eq!(signals[0].0, key);

        // A process that is missing on a database, which was unavailable when it registered, is
        // added by a renewal.
        let late = new_boot();
        world
            .placed
            .register_boot(late.clone())
            .await
            .expect("registers");
        let gone = format!("DELETE FROM boots WHERE boot_id = '{}'", late.id.0);
        let mut connection = PgConnection::connect(&world.urls[1])
            .await
            .expect("connects");
        connection
            .execute(AssertSqlSafe(gone))
            .await
            .expect("removes");
        connection.close().await.expect("closes");
        world
            .placed
            .renew_boot(late.id, TTL, 0)
            .await
            .expect("renews");
        let is_there = async || {
            let boots = world.stores["b"].list_boots().await.expect("lists");
            boots.iter().any(|it| it.id == late.id)
        };
        while !is_there().await {
            moment().await;
        }
        world.placed.stop_boot(boot).await.expect("stops");
        let boots = world.placed.list_boots().await.expect("lists");
        let dead = |id: BootId| {
            boots
                .iter()
                .find(|it| it.id == id)
                .expect("is known")
                .dead_at
        };
        assert!(dead(boot).is_some() && dead(late.id).is_none());
        assert_eq!(boots.len(), 2, "each once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_pauses_are_known_where_a_tenant_is() {
    with_world("limits", async |world| {
        let tenant = world.tenant("limited").await;
        world.take(tenant, "c").await;
        let limits = Limits {
            sends_running: Some(3),
            ..Limits::default()
        };
        let patch = TenantPatch {
            name: Some("renamed".to_owned()),
            limits: Some(limits.clone()),
            weight: None,
            retention: None,
            pools: None,
        };
        let updated = world.placed.update_tenant(tenant, patch).await;
        let updated = updated.expect("updates");
        assert!(
            matches!(updated, UpdateTenantOutcome::Updated(_)),
            "{updated:?}"
        );
        let there = world.stores["c"].get_tenant(tenant).await.expect("reads");
        assert_eq!(there.expect("is there").limits, limits);
        let named = world.placed.named_tenant("renamed".to_owned()).await;
        assert_eq!(named.expect("reads"), Some(tenant));
        // A change that did not reach the tenant's database is applied later.
        let home = &world.stores["home"];
        let lifted = TenantPatch {
            name: None,
            limits: Some(Limits::default()),
            weight: None,
            retention: None,
            pools: None,
        };
        home.update_tenant_at_home(tenant, lifted)
            .await
            .expect("updates");
        world
            .placed
            .sweep_retention(Duration::from_hours(1))
            .await
            .expect("sweeps");
        let there = world.stores["c"].get_tenant(tenant).await.expect("reads");
        assert_eq!(there.expect("is there").limits, Limits::default());

        let key = PauseKey::tenant(tenant);
        let item = NewPause {
            key: key.clone(),
            reason: None,
        };
        // Paused only at home, as if the process had died right after.
        home.pause(item).await.expect("pauses");
        world.placed.wake_paused(10).await.expect("looks");
        let all = ListPauses {
            tenant: None,
            after: None,
            limit: 10,
        };
        let paused = world.stores["c"]
            .list_pauses(all.clone())
            .await
            .expect("lists");
        assert_eq!(paused.data.len(), 1);
        world.placed.resume(key).await.expect("resumes");
        let paused = world.stores["c"].list_pauses(all).await.expect("lists");
        assert_eq!(paused.data.len(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_in_pieces_goes_over_every_database() {
    with_world("pieces", async |world| {
        let mut expected = 0;
        for (n, place) in NAMES.into_iter().enumerate() {
            let tenant = world.tenant(place).await;
            world.take(tenant, place).await;
            for _ in 0..=n {
                world.session(tenant).await;
                expected += 1;
            }
        }
        let (mut from, mut count) = (AuditPlace::START, 0);
        loop {
            let piece = AuditPiece {
                kind: AuditKind::Sessions,
                from,
                limit: 2,
                options: AuditOptions::default(),
            };
            let audited = world.placed.audit_piece(piece).await.expect("audits");
            assert_eq!(audited.violations, []);
            count += audited.count;
            let Some(next) = audited.next else { break };
            assert!(next > from, "{next:?} behind {from:?}");
            from = next;
        }
        assert!(count >= expected, "{count} of {expected}");
    })
    .await;
}

/// Settings for databases that isolate tenants themselves, by row security.
fn with_row_security(url: &str) -> Settings {
    Settings {
        row_security: true,
        ..settings(url)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_acts_for_one_tenant_reads_the_whole_catalogue_and_no_rows_of_others() {
    with_world_of("walled", with_row_security, async |world| {
        let mut keys = Vec::new();
        for (name, place) in [("first", "b"), ("second", "b"), ("third", "c")] {
            let tenant = world.tenant(name).await;
            keys.push(world.session(tenant).await);
            world.take(tenant, place).await;
        }
        let [first, second, third] = keys[..] else {
            panic!("three sessions");
        };
        // It reads the catalogue while serving a request of the tenant with the newest row.
        let fresh = together(&world.stores);
        let read = scoped(third.tenant, fresh.get_session(third)).await;
        assert!(read.expect("reads").is_some());
        for key in [first, second] {
            let read = fresh.get_session(key).await.expect("reads");
            assert!(read.is_some(), "{key} is found where it is");
        }
        // A write scoped to one tenant passes the fence, which sees that the tenant is not away.
        let sends = [first, second].map(|key| (key.tenant, to(key)));
        let mut ids = Vec::new();
        for (tenant, item) in sends {
            ids.push((tenant, item.id));
            let boot = BootId(item.id.0);
            let accepted = scoped(tenant, fresh.accept_sends(boot, vec![item])).await;
            let accepted = accepted.expect("accepts");
            assert!(
                matches!(accepted[..], [AcceptOutcome::Accepted(_)]),
                "{accepted:?}"
            );
        }
        // Row security also holds in a step that is split by database: both tenants are on the same
        // one.
        let seen = scoped(first.tenant, fresh.get_sends(ids.clone())).await;
        let seen: Vec<bool> = seen.expect("reads").iter().map(Option::is_some).collect();
        assert_eq!(seen, [true, false]);
        let seen = fresh.get_sends(ids).await.expect("reads");
        assert!(seen.iter().all(Option::is_some));
    })
    .await;
}
