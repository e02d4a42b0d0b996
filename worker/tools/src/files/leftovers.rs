//! Removes the directories of sessions that were deleted, with everything in them.
//!
//! A directory is removed only by workers of the database that its session was in: the root has a
//! mark of that database, and with that of another one nothing is ever removed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::Lifecycle;
use mainspring_shared::id::SessionKey;
use mainspring_shared::store::Store;
use mainspring_shared::time::{Clock, Timestamp};
use sha2::{Digest, Sha256};

use super::workspace::Workspace;

/// The pause between two passes over all directories.
const EVERY: Duration = Duration::from_mins(5);

/// How long a session counts as new, in seconds: longer than any replica of a database lags.
const YOUNG_SECONDS: i64 = 600;

/// What the mark of a database begins with.
const MARK: &str = ".mainspring-of-";

/// The name of the mark of a database.
fn mark(database: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(database.as_bytes()).into();
    let half: [u8; 16] = std::array::from_fn(|n| digest[n]);
    format!("{MARK}{}", uuid::Uuid::from_bytes(half).simple())
}

/// Removes what is left over until shutdown.
pub(crate) async fn run(
    workspace: Arc<Workspace>,
    database: String,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    lifecycle: Lifecycle,
) {
    match own(&workspace, &database) {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(
                "the workspace is that of another database too: the files of deleted sessions stay"
            );
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "the files of deleted sessions stay");
            return;
        }
    }
    loop {
        let mut gone = Vec::new();
        for session in listed(&workspace) {
            // What cannot be looked up may exist, and what is new may not be seen yet.
            if is_old(session, clock.now()) && matches!(store.get_session(session).await, Ok(None))
            {
                gone.push(session);
            }
        }
        remove(&workspace, gone).await;
        tokio::select! {
            () = clock.sleep(EVERY) => {}
            () = lifecycle.stopping() => return,
        }
    }
}

/// Marks the workspace as that of this database. False if it is that of another one.
fn own(workspace: &Workspace, database: &str) -> io::Result<bool> {
    let own = mark(database);
    workspace.mark(&own)?;
    let names = workspace.names()?;
    Ok(names
        .iter()
        .all(|name| !name.starts_with(MARK) || *name == own))
}

/// Whether a session is so old, by its id, that a database that does not have it had it once.
fn is_old(session: SessionKey, now: Timestamp) -> bool {
    let born = session.session.0.get_timestamp();
    let seconds = born.map_or(0, |born| born.to_unix().0);
    let age = now.0 / 1_000 - i64::try_from(seconds).unwrap_or(i64::MAX);
    age > YOUNG_SECONDS
}

/// The sessions that have a directory.
fn listed(workspace: &Workspace) -> Vec<SessionKey> {
    workspace.sessions().unwrap_or_else(|error| {
        tracing::warn!(%error, "the directories of sessions could not be listed");
        Vec::new()
    })
}

/// Removes the directories of sessions that are gone.
async fn remove(workspace: &Arc<Workspace>, gone: Vec<SessionKey>) {
    for session in gone {
        let place = workspace.clone();
        let outcome = tokio::task::spawn_blocking(move || place.remove(session)).await;
        if let Err(error) = outcome
            .map_err(io::Error::other)
            .and_then(|outcome| outcome)
        {
            tracing::warn!(
                session.id = %session.session,
                %error,
                "the files of a deleted session could not be removed; will retry"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SessionId, TenantId};

    use super::*;
    use crate::settings::{Limits, WorkspaceSettings};

    fn key(tenant: i32, n: u128) -> SessionKey {
        SessionKey {
            tenant: TenantId(tenant),
            session: SessionId(uuid::Uuid::from_u128(n)),
        }
    }

    fn opened(settings: &WorkspaceSettings) -> Arc<Workspace> {
        Arc::new(Workspace::open(settings, Limits::default()).expect("opens"))
    }

    #[tokio::test]
    async fn the_files_of_a_deleted_session_go_and_those_of_others_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let workspace = opened(&WorkspaceSettings::per_session(dir.path()));
        let (kept, deleted, foreign) = (key(1, 1), key(1, 2), key(2, 1));
        for session in [kept, deleted, foreign] {
            let place = workspace.session_dir(session).expect("opens");
            let below = place.path().join("a/b");
            std::fs::create_dir_all(&below).expect("is made");
            std::fs::write(below.join("secret.txt"), "personal").expect("is written");
        }
        // A session is one of its tenant: the same id in another tenant is another one.
        let outside = dir.path().join("notes");
        std::fs::create_dir(&outside).expect("is made");
        let target = tempfile::tempdir().expect("a folder");
        std::fs::write(target.path().join("kept"), "x").expect("is written");
        let link = key(1, 3);
        let name = dir.path().join(link.session.to_string());
        std::os::unix::fs::symlink(target.path(), &name).expect("links");

        let mut gone = listed(&workspace);
        gone.retain(|session| *session != kept);
        assert_eq!(gone.len(), 3, "{gone:?}");
        remove(&workspace, gone).await;

        let text = |session: SessionKey| {
            let place = workspace.session_dir(session).expect("opens");
            std::fs::read_to_string(place.path().join("a/b/secret.txt")).ok()
        };
        assert_eq!(text(kept).as_deref(), Some("personal"));
        assert_eq!((text(deleted), text(foreign)), (None, None));
        assert!(outside.exists(), "what is no session's is not touched");
        assert!(
            target.path().join("kept").exists(),
            "links are not followed"
        );
    }

    #[test]
    fn a_session_is_new_for_a_while() {
        // 2024-01-01T00:00:00Z
        let born = 1_704_067_200_000_u64;
        let id = uuid::Builder::from_unix_timestamp_millis(born, &[7; 10]).into_uuid();
        let session = SessionKey {
            tenant: TenantId(1),
            session: SessionId(id),
        };
        let after = |seconds: i64| Timestamp(1_704_067_200_000 + seconds * 1_000);
        assert!(!is_old(session, after(0)));
        assert!(!is_old(session, after(YOUNG_SECONDS)));
        assert!(is_old(session, after(YOUNG_SECONDS + 1)));
    }

    #[test]
    fn a_workspace_of_two_databases_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let workspace = opened(&WorkspaceSettings::per_session(dir.path()));
        for _ in 0..2 {
            assert!(own(&workspace, "postgres://one/x").expect("is marked"));
        }
        assert!(!own(&workspace, "postgres://two/x").expect("is marked"));
        assert!(!own(&workspace, "postgres://one/x").expect("is marked"));
    }
}
