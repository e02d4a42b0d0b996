//! Works through due items even if some of them cannot be read or written.

use mainspring_shared::store::{Error, Result};

use crate::rows::skipped;

/// Failing items that are replaced by the next due ones. Beyond that, the items after them wait
/// until the failing ones are repaired: each replacement costs a query.
const REPLACED_MAX: u32 = 100;

/// A range of the due items, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The maximum number of items.
    pub(crate) limit: u32,
    /// The number of items to skip before the first.
    pub(crate) skip: u32,
}

/// The ranges left to try: first all items at once, then, if an item's data is bad, in halves.
/// Items that were served are not due any more, so ranges begin after those that were skipped.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Limits; the next one is last.
    left: Vec<u32>,
    passed_over: u32,
}

impl Pieces {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            left: vec![limit],
            passed_over: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Option<Piece> {
        let limit = self.left.pop()?;
        Some(Piece {
            limit,
            skip: self.passed_over,
        })
    }

    /// The result of a piece; `None` if it will be retried in halves, or was skipped.
    pub(crate) fn of<T>(&mut self, piece: Piece, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.is_of_data() => {
                self.fails(piece, &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn fails(&mut self, piece: Piece, error: &Error) {
        if piece.limit <= 1 {
            skipped(error);
            self.passed_over += 1;
            if self.passed_over <= REPLACED_MAX {
                // Try another item in its place, if there is one.
                self.left.push(1);
            }
            return;
        }
        let half = piece.limit / 2;
        self.left.extend([piece.limit - half, half]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrupt() -> Error {
        Error::Corrupt {
            table: "sends",
            column: "usage",
            row: String::new(),
            detail: String::new(),
        }
    }

    /// Serves items of which some are bad; returns those that were served and the number of
    /// attempts.
    fn served(mut due: Vec<u32>, sick: &[u32], limit: u32) -> (Vec<u32>, u32) {
        let mut pieces = Pieces::new(limit);
        let (mut served, mut tries) = (Vec::new(), 0);
        while let Some(piece) = pieces.next() {
            tries += 1;
            let mine = due.iter().skip(piece.skip as usize);
            let mine: Vec<u32> = mine.take(piece.limit as usize).copied().collect();
            let outcome = if mine.iter().any(|item| sick.contains(item)) {
                Err(corrupt())
            } else {
                Ok(mine)
            };
            if let Some(mine) = pieces.of(piece, outcome).expect("of data only") {
                due.retain(|item| !mine.contains(item));
                served.extend(mine);
            }
        }
        (served, tries)
    }

    #[test]
    fn what_is_at_fault_is_passed_over_and_nothing_else() {
        let due: Vec<u32> = (0..100).collect();
        assert_eq!(served(due.clone(), &[], 100), (due.clone(), 1));
        let (mut found, tries) = served(due.clone(), &[0, 41, 99], 100);
        found.sort_unstable();
        let healthy = due.into_iter().filter(|item| ![0, 41, 99].contains(item));
        assert_eq!(found, healthy.collect::<Vec<_>>());
        assert!(tries < 60, "{tries}");
    }

    #[test]
    fn what_is_at_fault_takes_no_ones_place() {
        assert_eq!(served(vec![1, 2, 3, 4], &[1, 2], 1), (vec![3], 3));
        let all: Vec<u32> = (0..1_000).collect();
        let (found, tries) = served(all.clone(), &all, 1);
        assert!(found.is_empty());
        assert_eq!(tries, REPLACED_MAX + 1);
    }

    #[test]
    fn other_failures_end_it() {
        let mut pieces = Pieces::new(8);
        let piece = pieces.next().expect("there is one");
        let away = Error::Unavailable {
            source: "away".into(),
        };
        assert!(pieces.of::<()>(piece, Err(away)).is_err());
    }
}
