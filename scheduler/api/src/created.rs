//! Lists of what was created between two times, which ids say: they are in the order of time, and begin with its milliseconds.

use mainspring_shared::id::first_id;
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::extract::Limit;
use crate::respond::Begin;

/// When the items of a list were created: from a time on, and before one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Created {
    pub(crate) from: Option<Timestamp>,
    pub(crate) before: Option<Timestamp>,
}

impl Created {
    pub(crate) fn is_some(self) -> bool {
        self.from.is_some() || self.before.is_some()
    }

    /// Where a page begins of a list whose cursor names the last item of the page before; newer ones come first.
    pub(crate) fn begin<C: Ord>(
        self,
        cursor: Option<C>,
        Limit(limit): Limit,
        id: impl Fn(Uuid) -> C,
    ) -> Begin<C> {
        let end = self.before.map(|at| id(first_id(at)));
        let cursor = [cursor, end].into_iter().flatten().min();
        Begin { cursor, limit }
    }

    /// Leaves the rows of a page that are not too old, and says whether there may be more of them.
    pub(crate) fn keep<T>(self, rows: &mut Vec<T>, more: bool, id: impl Fn(&T) -> Uuid) -> bool {
        let Some(from) = self.from.map(first_id) else {
            return more;
        };
        let fit = rows.iter().position(|row| id(row) < from);
        rows.truncate(fit.unwrap_or(rows.len()));
        more && fit.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: [i64; 4] = [1_000, 1_001, 1_002, 1_003];

    /// Ids of these times, newest first, as lists have them.
    fn ids() -> Vec<Uuid> {
        let of = |at: i64| Uuid::from_u128(first_id(Timestamp(at)).as_u128() | 7);
        AT.into_iter().rev().map(of).collect()
    }

    fn page(created: Created, cursor: Option<Uuid>) -> (Vec<u128>, bool) {
        let begin = created.begin(cursor, Limit(10), |id| id);
        let mut rows = ids();
        rows.retain(|id| begin.cursor.is_none_or(|cursor| *id < cursor));
        let more = created.keep(&mut rows, true, |id| *id);
        let times = rows.iter().map(|id| id.as_u128() >> 80);
        (times.collect(), more)
    }

    #[test]
    fn a_list_has_what_was_created_from_one_time_until_before_another() {
        let [from, before] = [Some(Timestamp(1_001)), Some(Timestamp(1_003))];
        let found = |from, before| page(Created { from, before }, None);
        assert_eq!(found(None, None), (vec![1_003, 1_002, 1_001, 1_000], true));
        assert_eq!(found(from, None), (vec![1_003, 1_002, 1_001], false));
        assert_eq!(found(None, before), (vec![1_002, 1_001, 1_000], true));
        assert_eq!(found(from, before), (vec![1_002, 1_001], false));
        assert_eq!(found(before, from), (vec![], false));
    }

    #[test]
    fn a_page_goes_on_where_the_one_before_ended() {
        let created = Created {
            from: Some(Timestamp(1_000)),
            before: Some(Timestamp(1_003)),
        };
        assert_eq!(page(created, Some(ids()[1])), (vec![1_001, 1_000], true));
        // A cursor of another list does not widen this one.
        assert_eq!(
            page(created, Some(Uuid::max())),
            (vec![1_002, 1_001, 1_000], true)
        );
    }
}
