//! Violations that were seen once and wait for a second check to confirm them.
//!
//! A violation that is seen once may be about to disappear. For example, a send whose worker died
//! has no lease until a sweep finds it, and no process sweeps while the database is down or no
//! scheduler runs.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use mainspring_shared::store::{AuditPiece, Audited};
use serde_json::Value;

/// How many violations are remembered, so that each is reported once.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// How many pieces may wait to be checked again. The next scan finds those that do not fit.
const AGAIN_MAX: usize = 64;

/// A violation to be reported.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Confirmed {
    pub(super) invariant: String,
    pub(super) row: Value,
}

#[derive(Debug)]
pub(super) struct Suspects {
    /// How long a violation has to last to be reported.
    lasting: Duration,
    /// Violations that wait for a second check or were already reported.
    known: LruCache<String, ()>,
    /// Second checks, in the order in which they are due.
    again: VecDeque<Again>,
}

/// A second check.
#[derive(Debug)]
struct Again {
    due: Duration,
    piece: AuditPiece,
    /// The violations to confirm.
    known: Vec<String>,
}

impl Suspects {
    pub(super) fn new(lasting: Duration) -> Self {
        Self {
            lasting,
            known: LruCache::new(KNOWN_MAX),
            again: VecDeque::new(),
        }
    }

    /// Records the violations that a first check found.
    pub(super) fn note(&mut self, piece: AuditPiece, audited: &Audited, now: Duration) {
        if self.again.len() >= AGAIN_MAX {
            return;
        }
        let names = rows(audited).map(|(invariant, row)| name(invariant, row));
        let known: Vec<String> = names
            .filter(|name| self.known.put(name.clone(), ()).is_none())
            .collect();
        if !known.is_empty() {
            self.again.push_back(Again {
                due: now + self.lasting,
                piece,
                known,
            });
        }
    }

    /// The piece whose second check is due, if any. It stays first until [`confirm`](Self::confirm)
    /// is called with its result.
    pub(super) fn due(&self, now: Duration) -> Option<AuditPiece> {
        let first = self.again.front()?;
        (first.due <= now).then_some(first.piece)
    }

    /// The violations of the first due piece that are still there.
    pub(super) fn confirm(&mut self, audited: &Audited) -> Vec<Confirmed> {
        let Some(again) = self.again.pop_front() else {
            return Vec::new();
        };
        let mut confirmed = Vec::new();
        for known in again.known {
            match rows(audited).find(|(invariant, row)| name(invariant, row) == known) {
                Some((invariant, row)) => confirmed.push(Confirmed {
                    invariant: invariant.to_owned(),
                    row: row.clone(),
                }),
                // It has disappeared. If it comes back, it counts as new.
                None => drop(self.known.pop(&known)),
            }
        }
        confirmed
    }
}

fn rows(audited: &Audited) -> impl Iterator<Item = (&str, &Value)> {
    audited.violations.iter().flat_map(|found| {
        let rows = found.rows.iter();
        rows.map(|row| (found.invariant.as_str(), row))
    })
}

/// The invariant and the session, run or timer that violates it. The rest of a row may change as
/// the session progresses.
fn name(invariant: &str, row: &Value) -> String {
    let whose = ["session", "run", "timer"];
    let whose = whose.iter().find_map(|kind| row.get(kind));
    format!("{invariant} {}", whose.unwrap_or(row))
}

#[cfg(test)]
mod tests {
    use mainspring_shared::store::{AuditKind, AuditOptions, AuditPlace};
    use serde_json::json;

    use super::*;

    const LASTING: Duration = Duration::from_secs(15);

    fn piece() -> AuditPiece {
        AuditPiece {
            kind: AuditKind::Sessions,
            from: AuditPlace::START,
            limit: 9,
            options: AuditOptions::default(),
        }
    }

    fn found(rows: &[(&str, Value)]) -> Audited {
        let rows = rows
            .iter()
            .map(|(name, row)| ((*name).to_owned(), row.clone()));
        Audited::of_rows(rows.collect(), 9, None)
    }

    #[test]
    fn what_lasts_is_told_once_and_what_was_mended_is_not() {
        let mut suspects = Suspects::new(LASTING);
        let lasts = (
            "session.seq_gap_free",
            json!({ "session": "a", "next_seq": 3 }),
        );
        let mended = ("send.running_has_lease", json!({ "session": "b" }));
        suspects.note(
            piece(),
            &found(&[lasts.clone(), mended.clone()]),
            Duration::ZERO,
        );
        assert_eq!(suspects.due(LASTING / 2), None);
        assert_eq!(suspects.due(LASTING), Some(piece()));
        // The session progressed in the meantime.
        let later = (
            "session.seq_gap_free",
            json!({ "session": "a", "next_seq": 5 }),
        );
        let confirmed = suspects.confirm(&found(std::slice::from_ref(&later)));
        let told = Confirmed {
            invariant: "session.seq_gap_free".to_owned(),
            row: json!({ "session": "a", "next_seq": 5 }),
        };
        assert_eq!(confirmed, [told]);
        // It is known, while the other one would count as new.
        suspects.note(piece(), &found(&[later]), LASTING);
        assert_eq!(suspects.due(LASTING * 9), None);
        suspects.note(piece(), &found(&[mended]), LASTING);
        assert_eq!(suspects.due(LASTING * 2), Some(piece()));
    }

    #[test]
    fn a_second_look_that_failed_is_made_again() {
        let mut suspects = Suspects::new(LASTING);
        let row = ("send.shape", json!({ "session": "a" }));
        suspects.note(piece(), &found(&[row]), Duration::ZERO);
        assert!(suspects.due(LASTING).is_some());
        assert!(suspects.due(LASTING).is_some());
    }
}
