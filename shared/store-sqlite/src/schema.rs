//! Comparison of a file's schema objects with those that this program needs.

use mainspring_shared::store::{SchemaFault, SchemaObject, schema_faults};
use mainspring_store_core::fault::Result;

use crate::driver::Driver;
use crate::fault::fault;
use crate::migrate;

const OBJECTS: &str = include_str!("../sql/transaction/schema_objects.sql");

/// What a file lacks of this program's schema, compared with a fresh one in memory.
pub(crate) fn faults(driver: &Driver) -> Result<Vec<SchemaFault>> {
    let fresh = Driver::in_memory().map_err(fault)?;
    fresh.script(&migrate::ddl()).map_err(fault)?;
    let needed = objects(&fresh).map_err(fault)?;
    let found = objects(driver).map_err(fault)?;
    Ok(schema_faults(&needed, &found))
}

fn objects(driver: &Driver) -> rusqlite::Result<Vec<SchemaObject>> {
    let mut statement = driver.raw().prepare(OBJECTS)?;
    let rows = statement.query_map((), |row| {
        let object: (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(SchemaObject::from(object))
    })?;
    rows.collect()
}
