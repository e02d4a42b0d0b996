//! Places that many share, of which nobody can take all.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Whether somebody who holds this many places may take another while this many are free: at most
/// `parts` times what is then left for everyone else.
///
/// So one alone gets all but a small rest, several in a hurry get the same each, and whoever comes
/// next always finds places, because the share of all the others falls as places get rare.
pub fn may_take(held: usize, free: usize, parts: usize) -> bool {
    held < free.saturating_mul(parts)
}

/// A number of places that those who hold them share by [`may_take`]; `K` says who somebody is.
#[derive(Clone)]
pub struct Shares<K: Ord> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    places: usize,
    parts: usize,
    held: Mutex<Held<K>>,
    freed: Notify,
}

struct Held<K> {
    total: usize,
    /// Who holds any.
    by: BTreeMap<K, usize>,
}

impl<K: Ord> fmt::Debug for Shares<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares")
            .field("places", &self.inner.places)
            .finish_non_exhaustive()
    }
}

/// A place. It is free again when this is dropped.
pub struct Share<K: Ord> {
    inner: Arc<Inner<K>>,
    of: K,
}

impl<K: Ord> fmt::Debug for Share<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").finish_non_exhaustive()
    }
}

impl<K: Ord> Inner<K> {
    fn held(&self) -> MutexGuard<'_, Held<K>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> Shares<K> {
    /// This many places. One alone gets up to `parts` times what is left for the others.
    pub fn new(places: usize, parts: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                places,
                parts,
                held: Mutex::new(Held {
                    total: 0,
                    by: BTreeMap::new(),
                }),
                freed: Notify::new(),
            }),
        }
    }

    /// Takes a place; none if whoever asks has its share already.
    pub fn take(&self, of: K) -> Option<Share<K>> {
        let mut held = self.inner.held();
        let free = self.inner.places.saturating_sub(held.total);
        let own = held.by.get(&of).copied().unwrap_or_default();
        if !may_take(own, free, self.inner.parts) {
            return None;
        }
        held.total += 1;
        *held.by.entry(of.clone()).or_default() += 1;
        Some(Share {
            inner: self.inner.clone(),
            of,
        })
    }

    /// Waits for a place. Those who hold few of them wait for none who holds many.
    pub async fn wait(&self, of: K) -> Share<K> {
        loop {
            let freed = self.inner.freed.notified();
            if let Some(share) = self.take(of.clone()) {
                return share;
            }
            freed.await;
        }
    }
}

impl<K: Ord> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = self.inner.held();
        held.total = held.total.saturating_sub(1);
        if let Some(own) = held.by.get_mut(&self.of) {
            *own -= 1;
            if *own == 0 {
                held.by.remove(&self.of);
            }
        }
        drop(held);
        self.inner.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn all(shares: &Shares<u32>, of: u32) -> Vec<Share<u32>> {
        std::iter::from_fn(|| shares.take(of)).collect()
    }

    #[test]
    fn one_alone_leaves_a_quarter_and_whoever_comes_next_finds_places() {
        let shares = Shares::new(4_096, 3);
        let got: Vec<_> = (0..5).map(|greedy| all(&shares, greedy)).collect();
        let counts: Vec<_> = got.iter().map(Vec::len).collect();
        assert_eq!(counts, [3_072, 768, 192, 48, 12]);
        assert!(shares.take(99).is_some(), "there is always a place left");
    }

    #[test]
    fn what_is_given_back_goes_to_those_who_have_little() {
        let shares = Shares::new(80, 3);
        let mut first = all(&shares, 1);
        let second = all(&shares, 2);
        assert_eq!((first.len(), second.len()), (60, 15));
        first.truncate(55);
        assert!(shares.take(1).is_none());
        assert!(shares.take(2).is_some());
        assert!(shares.take(3).is_some());
    }

    #[test]
    fn the_only_place_goes_round() {
        let shares = Shares::new(1, 7);
        let place = shares.take(1);
        assert!(place.is_some());
        assert!(shares.take(2).is_none());
        drop(place);
        assert!(shares.take(2).is_some());
    }

    #[tokio::test]
    async fn who_has_its_share_waits_and_who_has_none_does_not() {
        let shares = Shares::new(8, 1);
        let mut greedy = all(&shares, 1);
        assert_eq!(greedy.len(), 4);
        let waits = shares.wait(1);
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(shares.wait(2).now_or_never().is_some());
        greedy.truncate(2);
        assert!(waits.now_or_never().is_some());
    }
}
