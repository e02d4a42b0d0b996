//! Read connections, each opened on demand and kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::store::Connections;
use mainspring_store_core::db::Waiters;
use mainspring_store_core::fault::{Class, Fault, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::driver::Driver;
use crate::fault::fault;
use crate::options::SqliteOptions;

/// The readers of a file.
#[derive(Debug)]
pub(crate) struct Readers {
    options: SqliteOptions,
    free: Arc<Semaphore>,
    pool: Arc<Pool>,
    waiting: Waiters,
}

#[derive(Debug, Default)]
struct Pool(Mutex<Lent>);

#[derive(Debug, Default)]
struct Lent {
    idle: Vec<Driver>,
    open: u32,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Lent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader, returned to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    /// `None` while it is lent.
    driver: Option<Driver>,
    pool: Arc<Pool>,
    _free: OwnedSemaphorePermit,
}

impl Readers {
    pub(crate) fn new(options: SqliteOptions) -> Self {
        Self {
            free: Arc::new(Semaphore::new(options.readers.max(1) as usize)),
            options,
            pool: Arc::default(),
            waiting: Waiters::default(),
        }
    }

    /// Waits for a free reader.
    pub(crate) async fn next(&self) -> Result<Reader> {
        let free = self
            .waiting
            .counted(self.free.clone().acquire_owned())
            .await;
        let free = free.map_err(|closed| Fault::database(closed, Class::Unavailable))?;
        let idle = self.pool.lock().idle.pop();
        let driver = if let Some(driver) = idle {
            driver
        } else {
            let driver = Driver::reader(&self.options).map_err(fault)?;
            self.pool.lock().open += 1;
            driver
        };
        Ok(Reader {
            driver: Some(driver),
            pool: self.pool.clone(),
            _free: free,
        })
    }

    pub(crate) fn connections(&self) -> Connections {
        let lent = self.pool.lock();
        Connections {
            pool: "readers",
            open: lent.open,
            idle: u32::try_from(lent.idle.len()).unwrap_or(u32::MAX),
            waiting: self.waiting.now(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        match self.driver.take() {
            Some(driver) => self.pool.lock().idle.push(driver),
            // It was lent and not given back; another one will be opened in its place.
            None => self.pool.lock().open -= 1,
        }
    }
}

impl Reader {
    /// The connection, which must not be lent now.
    pub(crate) fn driver(&mut self) -> &mut Driver {
        self.driver.as_mut().expect("it is not lent")
    }

    /// Lends the connection; `None` if it is already lent.
    pub(crate) fn lend(&mut self) -> Option<Driver> {
        self.driver.take()
    }

    /// Takes a lent connection back.
    pub(crate) fn give_back(&mut self, driver: Driver) {
        self.driver = Some(driver);
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.driver.is_none()
    }
}
