//! Audits of some sessions, runs or timers at a time.

use mainspring_shared::id::TenantId;
use mainspring_shared::invariants::piecewise;
use mainspring_shared::store::{AuditKind, AuditPiece, AuditPlace, Audited, Dump};
use mainspring_shared::time::Timestamp;

use super::audit;

/// Checks the next piece of a dump, without the remains of tenants that are being erased.
pub(crate) fn audit_piece(
    mut dump: Dump,
    erasing: &[TenantId],
    now: Timestamp,
    piece: AuditPiece,
) -> Audited {
    let mut places: Vec<AuditPlace> = match piece.kind {
        AuditKind::Sessions => {
            let keys = dump.sessions.iter().map(|session| session.key);
            keys.map(|key| AuditPlace::of(key.tenant.0, key.session.0))
                .collect()
        }
        AuditKind::Runs => {
            let keys = dump.runs.iter().map(|run| run.run.key);
            keys.map(|key| AuditPlace::of(key.tenant.0, key.run.0))
                .collect()
        }
        AuditKind::Timers => {
            let timers = dump.timers.iter().map(|(timer, _)| timer);
            timers
                .map(|timer| AuditPlace::of(timer.tenant.0, timer.id.0))
                .collect()
        }
    };
    places.retain(|place| *place >= piece.from && !erasing.contains(&place.tenant));
    places.sort_unstable();
    let Some((range, next)) = AuditPlace::range(places, piece.limit) else {
        return Audited::NOTHING;
    };
    let within = |tenant, id| tenant == range.tenant && (range.first..=range.last).contains(&id);
    let kind = piece.kind;
    dump.sessions.retain(|session| {
        kind == AuditKind::Sessions && within(session.key.tenant, session.key.session.0)
    });
    dump.runs
        .retain(|run| kind == AuditKind::Runs && within(run.run.key.tenant, run.run.key.run.0));
    dump.timers
        .retain(|(timer, _)| kind == AuditKind::Timers && within(timer.tenant, timer.id.0));
    let mut violations = audit(&dump, now, piece.options);
    violations.retain(|found| piecewise(kind).contains(&found.invariant.as_str()));
    Audited {
        violations,
        count: range.count,
        next,
    }
}
