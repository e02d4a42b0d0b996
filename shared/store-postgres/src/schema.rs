//! Comparison of a database's schema objects with those that this program needs.

use mainspring_shared::store::{Result, SchemaFault, SchemaObject, schema_faults};

use crate::retry::{Pool, fetch, sql};
use crate::rows::Fields;

/// The objects that the migrations create, as Postgres 15 describes them. A test compares this file
/// and, with `UPDATE_DOCS=1`, writes it.
const NEEDED: &str = include_str!("../schema/needed.tsv");

/// What a database lacks of this program's schema.
pub(crate) async fn faults(pool: &Pool) -> Result<Vec<SchemaFault>> {
    let needed = SchemaObject::list(NEEDED);
    let found = objects(pool).await?;
    Ok(schema_faults(&needed, &found))
}

/// All schema objects of a database.
async fn objects(pool: &Pool) -> Result<Vec<SchemaObject>> {
    let rows = fetch(pool, || sql!("schema/objects")).await?;
    let object = |row| {
        let mut fields = Fields::new(row, "pg_class");
        Ok(SchemaObject {
            kind: fields.take("kind")?,
            name: fields.take("name")?,
            definition: fields.take("definition")?,
        })
    };
    rows.iter().map(object).collect()
}
