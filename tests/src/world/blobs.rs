//! An in-memory blob store that can be unavailable, slow or corrupt.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_shared::blob::{BlobPlace, Blobs, Error};
use mainspring_shared::time::Clock;

use super::Faulty;

/// What is wrong with the blob store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wrong {
    /// Nothing.
    #[default]
    Nothing,
    /// It is unavailable.
    Away,
    /// Each operation takes this long.
    Slow(Duration),
    /// It returns bytes other than those written.
    Lying,
    /// It returns fewer bytes than were written.
    Short,
    /// It has lost everything.
    Empty,
}

/// One process's access to a blob store, which kills the process at one of its writes.
#[derive(Debug)]
pub struct DyingBlobs {
    inner: Arc<FaultyBlobs>,
    process: Arc<Faulty>,
    at: usize,
    after: bool,
    writes: AtomicUsize,
}

impl DyingBlobs {
    /// Wraps `inner`: the process that uses the store `process` dies before its blob write number
    /// `at`, counted from 0, or right after that write if `after` is set.
    pub fn new(inner: Arc<FaultyBlobs>, process: Arc<Faulty>, at: usize, after: bool) -> Self {
        Self {
            inner,
            process,
            at,
            after,
            writes: AtomicUsize::new(0),
        }
    }

    /// Whether the process has died.
    pub fn fired(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > self.at
    }

    async fn death<T>(&self) -> T {
        self.process.kill();
        std::future::pending().await
    }

    async fn writing<T>(
        &self,
        write: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let dies = self.writes.fetch_add(1, Ordering::SeqCst) == self.at;
        if dies && !self.after {
            return self.death().await;
        }
        let written = write.await;
        if dies {
            return self.death().await;
        }
        written
    }
}

#[async_trait]
impl Blobs for DyingBlobs {
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error> {
        self.writing(self.inner.put(place, data)).await
    }

    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        self.inner.get(place, range).await
    }

    async fn exists(&self, place: BlobPlace) -> Result<bool, Error> {
        self.inner.exists(place).await
    }

    async fn delete(&self, place: BlobPlace) -> Result<(), Error> {
        self.writing(self.inner.delete(place)).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.inner.check().await
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// A blob store whose contents and calls tests can inspect.
#[derive(Debug)]
pub struct FaultyBlobs {
    clock: Arc<dyn Clock>,
    wrong: Mutex<Wrong>,
    kept: Mutex<BTreeMap<BlobPlace, Bytes>>,
    asked: Mutex<Vec<&'static str>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("nobody panics under it")
}

impl FaultyBlobs {
    /// An empty store that is slow by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            wrong: Mutex::default(),
            kept: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    /// Sets what is wrong with it from now on.
    pub fn set(&self, wrong: Wrong) {
        *lock(&self.wrong) = wrong;
    }

    /// The places of all stored blobs.
    pub fn kept(&self) -> Vec<BlobPlace> {
        lock(&self.kept).keys().copied().collect()
    }

    /// How often this operation was called.
    pub fn asked(&self, what: &str) -> usize {
        lock(&self.asked)
            .iter()
            .filter(|asked| **asked == what)
            .count()
    }

    async fn answer(&self, what: &'static str) -> Result<Wrong, Error> {
        lock(&self.asked).push(what);
        let wrong = *lock(&self.wrong);
        match wrong {
            Wrong::Away => return Err(Error::unavailable("it was taken away by the test")),
            Wrong::Slow(time) => self.clock.sleep(time).await,
            Wrong::Nothing | Wrong::Lying | Wrong::Short | Wrong::Empty => {}
        }
        Ok(wrong)
    }
}

#[async_trait]
impl Blobs for FaultyBlobs {
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error> {
        self.answer("put").await?;
        lock(&self.kept).insert(place, data);
        Ok(())
    }

    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        let wrong = self.answer("get").await?;
        let kept = lock(&self.kept).get(&place).cloned();
        let Some(kept) = kept.filter(|_| wrong != Wrong::Empty) else {
            return Ok(None);
        };
        let whole = 0..kept.len() as u64;
        let range = range.unwrap_or(whole);
        let end = kept.len().min(range.end as usize);
        let mut data = kept.slice((range.start as usize).min(end)..end).to_vec();
        if wrong == Wrong::Lying {
            for byte in &mut data {
                *byte ^= 1;
            }
        }
        if wrong == Wrong::Short {
            data.pop();
        }
        Ok(Some(data.into()))
    }

    async fn exists(&self, place: BlobPlace) -> Result<bool, Error> {
        let wrong = self.answer("exists").await?;
        Ok(wrong != Wrong::Empty && lock(&self.kept).contains_key(&place))
    }

    async fn delete(&self, place: BlobPlace) -> Result<(), Error> {
        self.answer("delete").await?;
        lock(&self.kept).remove(&place);
        Ok(())
    }

    async fn check(&self) -> Result<(), Error> {
        self.answer("check").await?;
        Ok(())
    }

    fn describe(&self) -> String {
        "in the test's memory".to_owned()
    }
}
