//! A store wrapper that limits the time of every operation.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{Either, select};

use super::{BlobPlace, Blobs, Error};
use crate::time::Clock;

/// A wrapper of another store in which an operation that takes longer than `longest` fails as an
/// outage. The operation may still take effect, as after any outage.
#[derive(Debug)]
pub struct Timed {
    inner: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    longest: Duration,
}

impl Timed {
    /// Wraps this store.
    pub fn new(inner: Arc<dyn Blobs>, clock: Arc<dyn Clock>, longest: Duration) -> Self {
        Self {
            inner,
            clock,
            longest,
        }
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let work = std::pin::pin!(work);
        match select(work, self.clock.sleep(self.longest)).await {
            Either::Left((done, _)) => done,
            Either::Right(((), _)) => {
                let longest = self.longest;
                Err(Error::unavailable(format!(
                    "it did not answer within {longest:?}"
                )))
            }
        }
    }
}

#[async_trait]
impl Blobs for Timed {
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error> {
        self.within(self.inner.put(place, data)).await
    }

    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        self.within(self.inner.get(place, range)).await
    }

    async fn exists(&self, place: BlobPlace) -> Result<bool, Error> {
        self.within(self.inner.exists(place)).await
    }

    async fn delete(&self, place: BlobPlace) -> Result<(), Error> {
        self.within(self.inner.delete(place)).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.within(self.inner.check()).await
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
