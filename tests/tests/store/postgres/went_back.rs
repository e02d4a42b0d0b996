//! A database that went back in time is noticed by the lease that it forgot.

use std::time::Duration;

use mainspring_shared::store::{Boots as _, Renewal};
use sqlx::Executor as _;

use crate::postgres::world::{World, with_world};

async fn renewed(world: &World, boot: mainspring_shared::id::BootId) -> bool {
    let renewal = world
        .store
        .renew_boot(boot, Duration::from_secs(10), 0)
        .await;
    matches!(renewal.expect("the store answers"), Renewal::Renewed { .. })
}

#[tokio::test]
async fn a_lease_that_is_older_than_it_was_or_gone_is_told() {
    with_world("went_back", async |world| {
        let boot = world.boot_now().await;
        let mut connection = world.connection().await;
        assert!(renewed(world, boot).await && renewed(world, boot).await);
        assert_eq!((world.store.went_back(), world.store.losses()), (None, 0));
        let set_back = "UPDATE boots SET lease_until = lease_until - 5000";
        connection.execute(set_back).await.expect("sets back");
        assert!(renewed(world, boot).await);
        let told = world.store.went_back().expect("it went back");
        assert!(told.by.as_secs() >= 5, "{told:?}");
        assert_eq!(
            world.store.losses(),
            1,
            "what was read before is not trusted"
        );
        assert!(renewed(world, boot).await);
        assert_eq!(world.store.losses(), 1, "it is noticed once");
        connection
            .execute("DELETE FROM boots")
            .await
            .expect("forgets");
        assert!(!renewed(world, boot).await);
        assert_eq!(world.store.losses(), 2);
        assert!(!renewed(world, boot).await);
        assert_eq!(world.store.losses(), 2, "it is noticed once");
    })
    .await;
}
