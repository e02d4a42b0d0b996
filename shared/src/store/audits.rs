//! Parameters of audits, of everything at once and piece by piece.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::id::TenantId;
use crate::invariants::READABLE;

/// Bounds of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// How long a running send may be without a live lease: the takeover bound.
    pub takeover_bound: Duration,
    /// Rows shown of each violated invariant.
    pub rows_max: u32,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            takeover_bound: Duration::from_secs(15),
            rows_max: 20,
        }
    }
}

/// What an audit in pieces goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditKind {
    /// Sessions, with their sends, transcripts, steps, calls and inboxes.
    Sessions,
    /// Runs, with their nodes and leaves.
    Runs,
    /// Timers, with their occurrences.
    Timers,
}

impl AuditKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sessions, Self::Runs, Self::Timers];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Runs => "runs",
            Self::Timers => "timers",
        }
    }
}

/// A place in the order of tenants and ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditPlace {
    /// The tenant.
    pub tenant: TenantId,
    /// The id of a session, run or timer.
    pub id: Uuid,
}

impl AuditPlace {
    /// In front of everything.
    pub const START: Self = Self {
        tenant: TenantId(0),
        id: Uuid::nil(),
    };

    /// The place of an id of a tenant.
    pub fn of(tenant: i32, id: Uuid) -> Self {
        Self {
            tenant: TenantId(tenant),
            id,
        }
    }

    /// The range of at most `limit` of one tenant that the places begin with, and where the next one begins; none without
    /// a place. The places are in order, with one more than the limit where there are more.
    pub fn range(
        places: impl IntoIterator<Item = Self>,
        limit: u32,
    ) -> Option<(AuditRange, Option<Self>)> {
        let mut places = places.into_iter();
        let first = places.next()?;
        let mut range = AuditRange {
            tenant: first.tenant,
            first: first.id,
            last: first.id,
            count: 1,
        };
        for place in places {
            if place.tenant != range.tenant || range.count >= limit {
                return Some((range, Some(place)));
            }
            range.last = place.id;
            range.count += 1;
        }
        Some((range, None))
    }

    /// The one behind it.
    #[must_use]
    pub fn next(self) -> Self {
        match self.id.as_u128().checked_add(1) {
            Some(id) => Self {
                id: Uuid::from_u128(id),
                ..self
            },
            None => Self {
                tenant: TenantId(self.tenant.0.saturating_add(1)),
                id: Uuid::nil(),
            },
        }
    }
}

/// Ids of a tenant from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditRange {
    /// The tenant.
    pub tenant: TenantId,
    /// The first.
    pub first: Uuid,
    /// The last.
    pub last: Uuid,
    /// How many there were when they were read.
    pub count: u32,
}

/// A piece of an audit: of a kind, the next from a place on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPiece {
    /// What it goes over.
    pub kind: AuditKind,
    /// The first one, or what is next behind it.
    pub from: AuditPlace,
    /// At most so many.
    pub limit: u32,
    /// Its bounds.
    pub options: AuditOptions,
}

/// What a piece of an audit found.
#[derive(Debug, Clone, PartialEq)]
pub struct Audited {
    /// What violates an invariant.
    pub violations: Vec<Violation>,
    /// How many were checked.
    pub count: u32,
    /// Where the next piece begins; none once there is nothing left.
    pub next: Option<AuditPlace>,
}

impl Audited {
    /// Nothing was left to check.
    pub const NOTHING: Self = Self {
        violations: Vec::new(),
        count: 0,
        next: None,
    };

    /// Of a range that cannot be checked, because of a row in it.
    pub fn unreadable(
        range: AuditRange,
        next: Option<AuditPlace>,
        detail: &dyn std::error::Error,
    ) -> Self {
        let row = json!({
            "tenant": range.tenant.0, "first": range.first, "last": range.last,
            "detail": detail.to_string(),
        });
        Self::of_rows(vec![(READABLE.to_owned(), row)], range.count, next)
    }

    /// Of rows in the order of their invariants' names, as the queries return them.
    pub fn of_rows(rows: Vec<(String, Value)>, count: u32, next: Option<AuditPlace>) -> Self {
        let mut violations: Vec<Violation> = Vec::new();
        for (invariant, row) in rows {
            match violations.iter_mut().find(|v| v.invariant == invariant) {
                Some(violation) => violation.rows.push(row),
                None => violations.push(Violation {
                    invariant,
                    rows: vec![row],
                }),
            }
        }
        Self {
            violations,
            count,
            next,
        }
    }
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// The invariant's name, as in `invariants`.
    pub invariant: String,
    /// The rows that violate it.
    pub rows: Vec<Value>,
}
