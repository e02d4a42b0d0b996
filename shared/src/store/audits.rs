//! Parameters of audits, both of the whole database and piece by piece.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::id::TenantId;
use crate::invariants::READABLE;

/// Bounds of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// The takeover bound: how long a running send may be without a live lease.
    pub takeover_bound: Duration,
    /// Maximum number of rows shown per violated invariant.
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

/// What a piecewise audit goes over.
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

/// A position in the order of tenants and ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditPlace {
    /// The tenant.
    pub tenant: TenantId,
    /// The id of a session, run or timer.
    pub id: Uuid,
}

impl AuditPlace {
    /// Before everything.
    pub const START: Self = Self {
        tenant: TenantId(0),
        id: Uuid::nil(),
    };

    /// The position of a tenant's id.
    pub fn of(tenant: i32, id: Uuid) -> Self {
        Self {
            tenant: TenantId(tenant),
            id,
        }
    }

    /// Takes a range of at most `limit` places of one tenant from the front of `places`, and
    /// returns it with the place where the next range starts; `None` if there are no places.
    /// `places` must be in order, and hold one more than the limit if there are more.
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

    /// The next place.
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
    /// The first id.
    pub first: Uuid,
    /// The last id.
    pub last: Uuid,
    /// How many ids it contained when it was read.
    pub count: u32,
}

/// A piece of an audit: the next items of a kind, from a place on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPiece {
    /// What it goes over.
    pub kind: AuditKind,
    /// Start with this one, or the next one after it.
    pub from: AuditPlace,
    /// Maximum number of items.
    pub limit: u32,
    /// Its bounds.
    pub options: AuditOptions,
}

/// The result of auditing a piece.
#[derive(Debug, Clone, PartialEq)]
pub struct Audited {
    /// The violated invariants.
    pub violations: Vec<Violation>,
    /// How many items were checked.
    pub count: u32,
    /// Where the next piece starts; `None` at the end.
    pub next: Option<AuditPlace>,
}

impl Audited {
    /// Nothing was left to check.
    pub const NOTHING: Self = Self {
        violations: Vec::new(),
        count: 0,
        next: None,
    };

    /// The result for a range that cannot be checked because of an unreadable row.
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

    /// The result from rows ordered by invariant name, as the queries return them.
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
