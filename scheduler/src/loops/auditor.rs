//! Checks the invariants while the system runs, one piece at a time, and reports each lasting
//! violation once.
//!
//! Two scans alternate: recently written sessions come first, as far as this process has heard of
//! them, and everything else is scanned by id, over and over. Pieces are kept so short and so far
//! apart that the audit takes no more than its configured share of the time. Schedulers audit
//! independently of each other.

mod suspects;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::SessionKey;
use mainspring_shared::invariants::{INVARIANTS, READABLE};
use mainspring_shared::store::{
    self, AuditKind, AuditOptions, AuditPiece, AuditPlace, Audited, Violation,
};

use self::suspects::{Confirmed, Suspects};
use super::{Health, jittered, pause};
use crate::app::App;
use crate::metrics::{AUDIT_PASS_SECONDS, AUDIT_VIOLATIONS, AUDITED};

/// How many recently written sessions are remembered. The full scan covers those that do not fit.
const LATELY_MAX: usize = 256;

/// How many of those are checked between two pieces of the full scan.
const LATELY_EACH: usize = 8;

/// Target duration of a piece: the next piece is made larger after a shorter one, and smaller after
/// a longer one.
const PIECE: std::ops::Range<Duration> = Duration::from_millis(20)..Duration::from_millis(80);

/// Maximum number of items in a piece. The database holds all of their rows in memory at once.
const PIECE_MAX: u32 = 256;

/// Minimum pause between two pieces.
const REST_MIN: Duration = Duration::from_millis(20);

/// Minimum time from the start of one full scan to the next, since a small installation need not be
/// read all the time.
const PASS_MIN: Duration = Duration::from_secs(20);

/// Maximum interval between checks for recently written sessions while there is nothing else to do.
const LOOK: Duration = Duration::from_secs(1);

/// Sessions that were written recently.
#[derive(Debug, Default)]
pub(crate) struct RecentSessions(Mutex<(VecDeque<SessionKey>, BTreeSet<SessionKey>)>);

impl RecentSessions {
    /// Records that a session has a new step.
    pub(crate) fn note(&self, key: SessionKey) {
        let mut sessions = self.lock();
        let (order, known) = &mut *sessions;
        if order.len() < LATELY_MAX && known.insert(key) {
            order.push_back(key);
        }
    }

    fn take(&self) -> Option<SessionKey> {
        let mut sessions = self.lock();
        let (order, known) = &mut *sessions;
        let key = order.pop_front()?;
        known.remove(&key);
        Some(key)
    }

    fn lock(&self) -> MutexGuard<'_, (VecDeque<SessionKey>, BTreeSet<SessionKey>)> {
        // No statement under this lock can panic between two changes, so the value is always
        // consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Audits until shutdown.
pub(crate) async fn run(app: &App) {
    if app.config.audit_percent == 0 {
        app.process.lifecycle.stopping().await;
        return;
    }
    for (invariant, _) in INVARIANTS {
        // Alerts watch how the counter increases, so it has to exist before the first violation.
        metrics::counter!(AUDIT_VIOLATIONS, "invariant" => *invariant).increment(0);
    }
    let mut health = Health::new("auditor");
    let mut auditor = Auditor::new(app);
    loop {
        let wait = match auditor.look().await {
            Ok(wait) => {
                health.succeeded();
                wait
            }
            Err(error) => health.failed(&error, app.entropy.fraction()),
        };
        if !pause(app, wait).await {
            return;
        }
    }
}

struct Auditor<'a> {
    app: &'a App,
    /// The kind that the full scan has reached, and the place within that kind.
    kind: usize,
    from: AuditPlace,
    /// When the current full scan began, or when the next one is to begin.
    begins: Duration,
    /// The number of items in its next piece.
    limit: u32,
    /// How many recently written sessions may still be checked before that piece.
    lately: usize,
    options: AuditOptions,
    suspects: Suspects,
}

impl<'a> Auditor<'a> {
    fn new(app: &'a App) -> Self {
        let options = AuditOptions::default();
        // The end of its lease and a sweep reveal that a process has died.
        let takeover_bound = options.takeover_bound.max(3 * app.config.lease_ttl);
        Self {
            app,
            kind: 0,
            from: AuditPlace::START,
            begins: app.clock.monotonic(),
            // Sessions may be as long as is allowed. The limit grows once pieces turn out to be
            // cheap.
            limit: 1,
            lately: LATELY_EACH,
            options: AuditOptions {
                takeover_bound,
                ..options
            },
            suspects: Suspects::new(takeover_bound),
        }
    }

    /// Checks one piece. Returns how long to wait until the next one.
    async fn look(&mut self) -> Result<Duration, store::Error> {
        let begin = self.app.clock.monotonic();
        let is_due = begin >= self.begins;
        if let Some(piece) = self.suspects.due(begin) {
            let audited = self.app.store.audit_piece(piece).await?;
            for confirmed in self.suspects.confirm(&audited) {
                tell(&confirmed);
            }
        } else if (self.lately > 0 || !is_due)
            && let Some(key) = self.app.known.recent_sessions.take()
        {
            self.lately = self.lately.saturating_sub(1);
            let from = AuditPlace::of(key.tenant.0, key.session.0);
            self.check(AuditKind::Sessions, from, 1).await?;
        } else if is_due {
            self.lately = LATELY_EACH;
            let kind = AuditKind::ALL[self.kind];
            let audited = self.check(kind, self.from, self.limit).await?;
            let took = self.app.clock.monotonic().saturating_sub(begin);
            if took < PIECE.start && audited.count == self.limit {
                self.limit = (self.limit * 2).min(PIECE_MAX);
            } else if took > PIECE.end {
                self.limit = (self.limit / 2).max(1);
            }
            self.go_on(audited.next);
        } else {
            return Ok(self.begins.saturating_sub(begin).min(LOOK));
        }
        let took = self.app.clock.monotonic().saturating_sub(begin);
        let others = 100.0 / f64::from(self.app.config.audit_percent) - 1.0;
        Ok(jittered(self.app, took.mul_f64(others)).max(REST_MIN))
    }

    fn go_on(&mut self, next: Option<AuditPlace>) {
        self.from = next.unwrap_or(AuditPlace::START);
        if next.is_some() {
            return;
        }
        self.kind = (self.kind + 1) % AuditKind::ALL.len();
        if self.kind == 0 {
            let now = self.app.clock.monotonic();
            let took = now.saturating_sub(self.begins);
            metrics::gauge!(AUDIT_PASS_SECONDS).set(took.as_secs_f64());
            self.begins = now + PASS_MIN.saturating_sub(took);
        }
    }

    async fn check(
        &mut self,
        kind: AuditKind,
        from: AuditPlace,
        limit: u32,
    ) -> Result<Audited, store::Error> {
        let piece = AuditPiece {
            kind,
            from,
            limit,
            options: self.options,
        };
        let audited = self.app.store.audit_piece(piece).await?;
        let is_unreadable = |found: &Violation| found.invariant == READABLE;
        if limit > 1 && audited.violations.iter().any(is_unreadable) {
            // One item at a time from here on, so that the readable ones are still checked.
            self.limit = 1;
            return Ok(Audited {
                next: Some(from),
                ..Audited::NOTHING
            });
        }
        metrics::counter!(AUDITED, "kind" => kind.name()).increment(audited.count.into());
        let now = self.app.clock.monotonic();
        self.suspects.note(piece, &audited, now);
        Ok(audited)
    }
}

fn tell(Confirmed { invariant, row }: &Confirmed) {
    metrics::counter!(AUDIT_VIOLATIONS, "invariant" => invariant.clone()).increment(1);
    // Rows contain only ids and numbers, no content.
    tracing::error!(invariant, row = %row, "an invariant is violated");
}
