//! Text that Postgres cannot store.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::store::AfterSend;
use mainspring_shared::store::prelude::*;

use crate::postgres::world::{answer, new_session, to, with_world};

#[tokio::test]
async fn text_that_postgres_cannot_store_is_stored_with_a_replacement() {
    with_world("nul", async |world| {
        let mut new = new_session(AgentSpec {
            name: Some("a\0b".to_owned()),
            ..AgentSpec::default()
        });
        new.metadata.insert("k".to_owned(), "v\0".into());
        let key = new.key;
        let created = world.store.create_sessions(vec![(new, None)]).await;
        created.expect("creates");
        let session = world.store.get_session(key).await.expect("reads");
        assert_eq!(session.expect("exists").metadata["k"], "v\u{fffd}");
        let worker = world.boot(0).await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let mut item = answer(&claimed, AfterSend::Continue);
        item.result.output_text = Some("x\0y".to_owned());
        world.complete(3, item).await;
        let record = world.record(claimed.send.record.id).await;
        assert_eq!(record.output_text.as_deref(), Some("x\u{fffd}y"));
    })
    .await;
}
