//! What was granted to a process while it stopped was run by nobody.

use super::opened::{Opened, execute, reachable};
use super::steps::*;

#[tokio::test]
async fn what_a_boot_still_owns_that_stopped_counts_no_crash() {
    let Some(Opened { store, place }) = reachable().await else {
        return;
    };
    for (session, statement, crashes) in [
        (1, "UPDATE boots SET dead_at = lease_until", 0),
        (2, "UPDATE boots SET dead_at = lease_until + 1", 1),
    ] {
        register(&store, 0, 2 * session).await;
        register(&store, 0, 2 * session + 1).await;
        accept(&store, 1, opening(session, session)).await;
        claim(&store, 2, 2 * session, session, 10 * session).await;
        execute(&place, statement).await;
        execute(
            &place,
            "UPDATE boots SET dead_at = NULL WHERE name IN ('worker-3', 'worker-5')",
        )
        .await;
        let claimed = claim(&store, 3, 2 * session + 1, session, 10 * session + 1).await;
        assert_eq!(claimed.send.record.crashes, crashes, "{statement}");
    }
}
