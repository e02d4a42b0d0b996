//! Without an exporter, spans cost nothing. The check runs in a process of its own: as soon as one
//! subscriber of a process wants a span, `tracing` enables it for all of them and leaves it to
//! their layers to skip it.

use std::fmt::{self, Display};
use std::process::Command;

use mainspring_runtime::telemetry::{spans, traceparent};
use mainspring_runtime::{Propagation, Telemetry, TelemetrySettings};
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use tracing::info_span;
use uuid::Uuid;

struct Unseen;

impl Display for Unseen {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("it is formatted");
    }
}

/// Environment variable that is set for the checking process.
const ALONE: &str = "MAINSPRING_TEST_ALONE";

#[test]
fn spans_are_off_whatever_is_logged() {
    if std::env::var_os(ALONE).is_some() {
        return check();
    }
    let program = std::env::current_exe().expect("this program");
    let name = "spans_off::spans_are_off_whatever_is_logged";
    let ended = Command::new(program)
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("runs");
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success() && printed.contains("1 passed"),
        "{printed}\n{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

fn check() {
    let settings = TelemetrySettings {
        log: "trace".to_owned(),
        ..TelemetrySettings::default()
    };
    let telemetry = Telemetry::install(&settings, "worker").expect("the first subscriber");
    let session = SessionKey {
        tenant: TenantId(1),
        session: SessionId(Uuid::from_u128(2)),
    };
    let invocation = spans::Invocation {
        session,
        send: SendId(Uuid::from_u128(3)),
        agent: Some(("writer", 4)),
        epoch: 5,
        attempt: 1,
        rounds: 0,
        worker: "w",
        pool: "default",
        origin: None,
    };
    let send = spans::invoke_agent(&invocation, Propagation::Link);
    assert!(send.is_disabled());
    assert!(spans::chat(session, "main", "m", 1).is_disabled());
    let unseen = info_span!(target: "mainspring::span", "unseen", value = %Unseen);
    assert!(unseen.is_disabled());
    assert_eq!(send.in_scope(traceparent), None);
    // Spans that are never exported can still be logged.
    assert!(!info_span!("other").is_disabled());
    telemetry.shut_down();
}
