//! What tenants own: agents, skills, memories, blobs, and the tenants themselves.

use std::collections::BTreeMap;

use mainspring_shared::agent::{AgentKey, AgentSpec, AgentVersion, NamedAgent};
use mainspring_shared::blob::{BlobHash, BlobOwner, BlobPlace};
use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::memory::{MemoryEntry, MemorySource};
use mainspring_shared::message::{ContentPart, ImageSource};
use mainspring_shared::skill::{Manifest, SkillFile, SkillHash, SkillRecord, SkillSource};
use mainspring_shared::store::{BlobState, DumpAside, DumpBlob, DumpSkill};
use mainspring_shared::timer::TimerTarget;
use mainspring_shared::tool::CallResult;

use super::*;

const NOTHING: Vec<String> = Vec::new();
const OTHER: TenantId = TenantId(KEY.tenant.0 + 1);

fn agent(
    tenant: TenantId,
    numbers: &[i32],
    newest: i32,
    alias: i32,
) -> (NamedAgent, Vec<AgentVersion>) {
    let key = AgentKey {
        tenant,
        name: "helper".parse().expect("a name"),
    };
    let version = |n: &i32| AgentVersion {
        key: key.clone(),
        n: *n,
        spec: AgentSpec::default(),
        hash: String::new(),
        created_at: NOW,
    };
    let versions = numbers.iter().map(version).collect();
    let agent = NamedAgent {
        key: key.clone(),
        version: newest,
        aliases: [("live".parse().expect("an alias"), alias)].into(),
        created_at: NOW,
        updated_at: NOW,
        archived_at: None,
        limits: mainspring_shared::agent::AgentLimits::default(),
    };
    (agent, versions)
}

#[test]
fn an_alias_without_its_version_and_a_gap_between_versions_are_found() {
    let names = |numbers: &[i32], newest, alias| {
        found(|dump| dump.agents.push(agent(KEY.tenant, numbers, newest, alias)))
    };
    assert_eq!(names(&[1, 2], 2, 1), NOTHING);
    assert_eq!(names(&[1, 2], 2, 3), ["agent.versions"]);
    assert_eq!(names(&[1, 3], 3, 1), ["agent.versions"]);
    assert_eq!(names(&[1, 2], 3, 1), ["agent.versions"]);
}

#[test]
fn what_belongs_to_no_tenant_is_found() {
    let names = |tenants: &[TenantId]| {
        found(|dump| {
            dump.agents.push(agent(OTHER, &[1], 1, 1));
            dump.tenants = tenants.to_vec();
        })
    };
    assert_eq!(names(&[OTHER]), NOTHING);
    assert_eq!(names(&[]), ["tenant.exists"]);
}

#[test]
fn a_memory_of_another_tenants_send_is_found() {
    let names = |tenant: TenantId| {
        found(|dump| {
            let session = &dump.sessions[0];
            let source = MemorySource {
                session_id: session.key.session,
                send_id: session.sends[0].id,
                from_seq: None,
                to_seq: None,
            };
            let entry = MemoryEntry {
                id: MemoryId(Uuid::from_u128(1)),
                namespace: "user/1".parse().expect("a namespace"),
                text: "likes tea".to_owned(),
                metadata: serde_json::Map::new(),
                source: Some(source),
                earlier_sources: Vec::new(),
                created_at: NOW,
                updated_at: NOW,
                expires_at: None,
            };
            dump.memories.push((tenant, entry));
            dump.tenants.push(OTHER);
        })
    };
    assert_eq!(names(KEY.tenant), NOTHING);
    assert_eq!(names(OTHER), ["tenant.own_rows"]);
}

#[test]
fn a_skill_without_its_version_or_a_file_is_found() {
    let content = b"words";
    let hash = SkillHash::of_file(content);
    let file = SkillFile {
        path: "SKILL.md".to_owned(),
        bytes: content.len() as u64,
        sha256: hash,
        executable: false,
    };
    let record = SkillRecord {
        name: "count".to_owned(),
        hash,
        source: SkillSource::Uploaded,
        manifest: Manifest {
            files: vec![file],
            ..Manifest::default()
        },
        created_at: NOW,
    };
    let names = |versions: Vec<(SkillRecord, BTreeMap<String, u64>)>| {
        found(|dump| {
            dump.skills.push(DumpSkill {
                tenant: KEY.tenant,
                name: "count".to_owned(),
                current: Some(hash),
                versions,
            });
        })
    };
    let kept = |bytes: u64| BTreeMap::from([("SKILL.md".to_owned(), bytes)]);
    assert_eq!(names(vec![(record.clone(), kept(5))]), NOTHING);
    assert_eq!(names(Vec::new()), ["skill.complete"]);
    assert_eq!(names(vec![(record.clone(), kept(4))]), ["skill.complete"]);
    assert_eq!(names(vec![(record, BTreeMap::new())]), ["skill.complete"]);
}

fn blob(state: BlobState, owners: Vec<BlobOwner>) -> DumpBlob {
    DumpBlob {
        place: BlobPlace {
            tenant: KEY.tenant,
            sha256: BlobHash([0xab; 32]),
            generation: Uuid::from_u128(1),
        },
        state,
        media_type: "image/png".to_owned(),
        bytes: 1,
        owners,
    }
}

#[test]
fn a_blob_that_goes_while_it_is_held_is_found() {
    let names = |state| found(|dump| dump.blobs.push(blob(state, vec![KEY.session.into()])));
    assert_eq!(names(BlobState::Stored), NOTHING);
    assert_eq!(names(BlobState::Going), ["blob.held"]);
    assert_eq!(names(BlobState::Coming), ["blob.held"]);
}

fn picture() -> ContentPart {
    ContentPart::Image {
        source: ImageSource::Blob {
            media_type: "image/png".to_owned(),
            bytes: 1,
            sha256: BlobHash([0xab; 32]),
        },
    }
}

/// Whether a dump violates the invariant on named blobs if the blob is held for these owners.
fn misses(mut dump: Dump, plant: fn(&mut Dump), owners: Vec<BlobOwner>) -> bool {
    plant(&mut dump);
    dump.blobs.push(blob(BlobState::Stored, owners));
    let violations = audit(&dump, NOW, AuditOptions::default());
    violations.iter().any(|v| v.invariant == "blob.named")
}

#[test]
fn a_blob_that_a_timer_names_and_that_is_not_kept_for_it_is_found() {
    let plant = |dump: &mut Dump| {
        if let TimerTarget::Send { input, .. } = &mut dump.timers[0].0.target {
            input.push(picture());
        }
    };
    let timer = BlobOwner::Timer(ticking().timers[0].0.id);
    assert!(misses(ticking(), plant, vec![KEY.session.into()]));
    assert!(!misses(ticking(), plant, vec![timer]));
}

#[test]
fn a_blob_that_a_session_names_and_that_is_not_kept_for_it_is_found() {
    let plants: [fn(&mut Dump); 4] = [
        |dump| dump.sessions[0].messages[0].content.push(picture()),
        |dump| {
            let result = &mut dump.sessions[0].calls[0].result;
            let result = result.get_or_insert_with(|| CallResult::text(""));
            result.content.push(picture());
        },
        |dump| items(dump)[0].content.push(picture()),
        |dump| {
            let mut sends = dump.sessions[0].sends.iter_mut();
            let open = sends.find(|send| !send.status.is_final());
            open.expect("one is open").input.push(picture());
        },
    ];
    for plant in plants {
        assert!(misses(healthy(), plant, Vec::new()));
        assert!(!misses(healthy(), plant, vec![KEY.session.into()]));
    }
}

#[test]
fn what_a_copied_message_names_may_never_have_been_there() {
    let copied = found(|dump| {
        let message = &mut dump.sessions[0].messages[0];
        message.content.push(picture());
        message.epoch = 0;
    });
    assert!(!copied.contains(&"blob.named".to_owned()), "{copied:?}");
}

#[test]
fn seats_that_do_not_fit_what_runs_are_found() {
    let seats = |plant: &dyn Fn(&mut Dump)| {
        let names = found(plant);
        names.contains(&"tenant.seats".to_owned())
    };
    let limited = |dump: &mut Dump| dump.seat_limits.push((KEY.tenant, Timestamp(0)));
    let runs = |dump: &mut Dump| {
        let send = &mut dump.sessions[0].sends[0];
        send.status = SendStatus::Running;
        send.started_at = Some(NOW);
    };
    assert!(
        seats(&|dump: &mut Dump| dump.seats.push((KEY, Some(NOW)))),
        "without a limit"
    );
    assert!(
        seats(&|dump: &mut Dump| {
            limited(dump);
            runs(dump);
            dump.seats.push((KEY, Some(NOW)));
        }),
        "waits and runs"
    );
    assert!(
        seats(&|dump: &mut Dump| {
            limited(dump);
            runs(dump);
        }),
        "runs without a seat"
    );
    assert!(
        !seats(&|dump: &mut Dump| {
            limited(dump);
            runs(dump);
            dump.seats.push((KEY, None));
        }),
        "runs with one"
    );
    assert!(
        !seats(&|dump: &mut Dump| {
            limited(dump);
            for send in &mut dump.sessions[0].sends {
                if send.status == SendStatus::Running {
                    send.status = SendStatus::Waiting;
                }
            }
            dump.seats.push((KEY, Some(NOW)));
        }),
        "waits"
    );
}

#[test]
fn money_that_nobody_settles_is_found() {
    let money = |day: i64, boot: usize, at: i64| {
        let names = found(|dump| {
            dump.money_days.push((KEY.tenant, 1, 0));
            let boots: Vec<BootId> = dump.boots.iter().map(|boot| boot.id).collect();
            let nobody = BootId(Uuid::from_u128(0xdead));
            dump.money_aside.push(DumpAside {
                tenant: KEY.tenant,
                call: Uuid::from_u128(7),
                boot: boots.get(boot).copied().unwrap_or(nobody),
                day,
                amount: 5,
                at: Timestamp(at),
            });
        });
        names.contains(&"tenant.money".to_owned())
    };
    assert!(!money(1, 0, NOW.0));
    assert!(money(2, 0, NOW.0), "of no day");
    assert!(money(1, usize::MAX, NOW.0 - 60_001), "of no boot");
    assert!(!money(1, usize::MAX, NOW.0), "it may have died just now");
}

#[test]
fn money_of_an_agent_that_nobody_settles_is_found() {
    let agent = AgentKey {
        tenant: KEY.tenant,
        name: "helper".parse().expect("a name"),
    };
    let money = |day: i64, is_known: bool, at: i64| {
        let names = found(|dump| {
            let holder = agent.name.holder();
            dump.agent_money_days.push((KEY.tenant, holder, 1, 0));
            let nobody = BootId(Uuid::from_u128(0xdead));
            let aside = DumpAside {
                tenant: KEY.tenant,
                call: Uuid::from_u128(7),
                boot: if is_known { dump.boots[0].id } else { nobody },
                day,
                amount: 5,
                at: Timestamp(at),
            };
            dump.agent_money_aside.push((holder, aside));
        });
        names.contains(&"tenant.money".to_owned())
    };
    assert!(!money(1, true, NOW.0));
    assert!(money(2, true, NOW.0), "of no day");
    assert!(money(1, false, NOW.0 - 60_001), "of no boot");
    assert!(!money(1, false, NOW.0), "it may have died just now");
}
