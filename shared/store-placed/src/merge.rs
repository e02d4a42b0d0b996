//! Merging the answers of several databases into one.

use mainspring_shared::store::{Error, Result};

/// The answers of databases, with their indexes.
#[derive(Debug)]
pub(crate) struct Answers<T>(pub(crate) Vec<(usize, Result<T>)>);

impl<T> Answers<T> {
    /// The answers of the available databases. Fails if there are none, or if an available one
    /// returned an error.
    pub(crate) fn some(self) -> Result<Vec<(usize, T)>> {
        let mut found = Vec::with_capacity(self.0.len());
        let mut failed = None;
        for (place, answer) in self.0 {
            match answer {
                Ok(answer) => found.push((place, answer)),
                Err(error @ Error::Unavailable { .. }) => {
                    tracing::debug!(
                        place,
                        %error,
                        "a database is unavailable; leaving out its answer"
                    );
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match failed {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// The answers of all databases; fails if any failed.
    pub(crate) fn all(self) -> Result<Vec<(usize, T)>> {
        let answers = self.0.into_iter();
        answers
            .map(|(place, answer)| Ok((place, answer?)))
            .collect()
    }

    /// The sum of the answers of the available databases.
    pub(crate) fn sum<N>(self) -> Result<N>
    where
        N: std::iter::Sum<T>,
    {
        Ok(self.some()?.into_iter().map(|(_, part)| part).sum())
    }
}

/// Merges pages in the same order into one. Each contains the items after the same cursor, up to
/// the end or to the cursor of its next page. Returns the items, and the cursor of the merged next
/// page.
pub(crate) fn page<T, K: Ord + Copy>(
    pages: Vec<(Vec<T>, Option<K>)>,
    key: impl Fn(&T) -> K,
    limit: u32,
) -> (Vec<T>, Option<K>) {
    // Beyond this cursor, one of them has not looked yet.
    let end = pages.iter().filter_map(|(_, next)| *next).min();
    let mut items: Vec<T> = pages.into_iter().flat_map(|(items, _)| items).collect();
    items.retain(|item| end.is_none_or(|end| key(item) <= end));
    items.sort_by_key(&key);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if items.len() > limit {
        items.truncate(limit);
        let last = items.last().map(key);
        return (items, last);
    }
    (items, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(pages: &[(&[u32], Option<u32>)], limit: u32) -> (Vec<u32>, Option<u32>) {
        let pages = pages.iter().map(|(items, next)| (items.to_vec(), *next));
        page(pages.collect(), |item| *item, limit)
    }

    #[test]
    fn a_page_never_passes_what_one_database_has_not_looked_at() {
        assert_eq!(
            merged(&[(&[1, 4], None), (&[2, 3], None)], 9),
            (vec![1, 2, 3, 4], None)
        );
        assert_eq!(
            merged(&[(&[1, 9], None), (&[2, 3], Some(3))], 9),
            (vec![1, 2, 3], Some(3))
        );
        assert_eq!(
            merged(&[(&[1, 4], Some(4)), (&[2, 3], Some(3))], 2),
            (vec![1, 2], Some(2))
        );
        assert_eq!(merged(&[(&[], None), (&[], None)], 2), (vec![], None));
    }

    #[test]
    fn every_item_is_on_one_page() {
        let places: [&[u32]; 3] = [&[1, 5, 6, 11], &[2, 3, 4], &[7, 8, 9, 10, 12, 13]];
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let pages = places.map(|all| {
                let items = all.iter().copied().filter(|item| *item > after);
                let items: Vec<u32> = items.take(2).collect();
                let next = items.last().copied().filter(|_| items.len() == 2);
                (items, next)
            });
            let (items, next) = page(pages.to_vec(), |item| *item, 2);
            found.extend(items);
            let Some(next) = next else { break };
            after = next;
        }
        assert_eq!(found, (1..=13).collect::<Vec<_>>());
    }

    #[test]
    fn a_database_that_is_away_is_left_out_unless_all_are() {
        let away = || {
            Err(Error::Unavailable {
                source: "away".into(),
            })
        };
        let some = Answers(vec![(0, away()), (1, Ok(3)), (2, Ok(4))]);
        assert_eq!(some.sum::<u32>().expect("two answered"), 7);
        assert!(
            Answers::<u32>(vec![(0, away()), (1, away())])
                .some()
                .is_err()
        );
        assert!(Answers(vec![(0, away()), (1, Ok(3))]).all().is_err());
        let wrong = Err(Error::Refused {
            source: "wrong".into(),
        });
        assert!(Answers(vec![(0, Ok(1)), (1, wrong)]).some().is_err());
    }
}
