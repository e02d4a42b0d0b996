//! The store suite on the model.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_runtime::SystemClock;
use mainspring_shared::store::Inspect;
use mainspring_store_model::ModelStore;
use mainspring_tests::store_suite;
use mainspring_tests::suites::store::agreement::assert_agrees;
use mainspring_tests::suites::store::harness::Opened;
use mainspring_tests::suites::store::writes::assert_written_once;

struct Model(ModelStore);

#[async_trait]
impl Opened for Model {
    fn store(&self) -> &dyn Inspect {
        &self.0
    }

    async fn close(self) {}
}

async fn open() -> Option<Model> {
    Some(Model(ModelStore::open(Arc::new(SystemClock::new()))))
}

store_suite!(open);

#[test]
fn every_write_takes_effect_once_and_none_by_a_stale_writer() {
    assert_written_once(open);
}

#[test]
fn the_model_agrees_with_itself_and_stays_sound() {
    assert_agrees(open);
}
