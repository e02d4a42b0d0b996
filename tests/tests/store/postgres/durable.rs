//! Durability of commits made under a lease.

use crate::postgres::world::{World, to, with_world};

/// The durability that a commit promised, as a trigger saw it just before.
async fn promised(world: &World) -> Vec<String> {
    let mut connection = world.connection().await;
    let seen = sqlx::query_scalar("SELECT level FROM seen ORDER BY n");
    let seen = seen.fetch_all(&mut connection).await.expect("reads");
    sqlx::raw_sql("TRUNCATE seen")
        .execute(&mut connection)
        .await
        .expect("forgets");
    seen
}

#[tokio::test]
async fn a_claim_that_writes_a_step_is_durable_and_another_need_not_be() {
    with_world("durable", async |world| {
        let mut connection = world.connection().await;
        let watch = sqlx::raw_sql(
            "CREATE TABLE seen (n bigint GENERATED ALWAYS AS IDENTITY, level text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO seen (level) VALUES (current_setting('synchronous_commit'));
                 RETURN NULL;
             END $$;
             CREATE CONSTRAINT TRIGGER see AFTER UPDATE ON session_hot
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see();",
        );
        watch.execute(&mut connection).await.expect("watches");
        let (old, new) = (world.boot(0).await, world.boot(20_000).await);
        let key = world.session().await;
        world.send(1, to(key)).await;
        promised(world).await;
        world.claim(2, old, key).await;
        assert_eq!(promised(world).await, ["off"]);
        world.claim(20_001, new, key).await;
        assert_eq!(promised(world).await, ["on"]);
        // The setting applies to that commit only.
        let other = world.session().await;
        world.send(20_002, to(other)).await;
        promised(world).await;
        world.claim(20_003, new, other).await;
        assert_eq!(promised(world).await, ["off"]);
    })
    .await;
}
