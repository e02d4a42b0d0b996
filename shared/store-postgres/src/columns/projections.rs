//! Projections as columns.

use mainspring_shared::session::projection::Projection;
use uuid::Uuid;

use super::json;
use crate::retry::PgQuery;

/// Projections of several items to store.
#[derive(Debug, Default)]
pub(crate) struct ProjectionColumns {
    ords: Vec<i64>,
    from: Vec<i64>,
    to: Vec<i64>,
    sends: Vec<Uuid>,
    versions: Vec<i32>,
    digests: Vec<String>,
}

impl ProjectionColumns {
    pub(crate) fn push(&mut self, ord: i64, projections: &[Projection]) {
        for projection in projections {
            self.ords.push(ord);
            self.from.push(projection.from_seq);
            self.to.push(projection.to_seq);
            self.sends.push(projection.send_id.0);
            self.versions.push(projection.version);
            self.digests.push(json(&projection.left));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ords.is_empty()
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.ords)
            .bind(self.from)
            .bind(self.to)
            .bind(self.sends)
            .bind(self.versions)
            .bind(self.digests)
    }
}
