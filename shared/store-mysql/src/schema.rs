//! Comparison of a database's schema objects with those that this program needs.

use mainspring_shared::store::{SchemaFault, SchemaObject, schema_faults};
use mainspring_store_core::fault::Result;
use sqlx::mysql::MySqlConnection;

use crate::fault::fault;

const OBJECTS: &str = include_str!("../schema/objects.sql");

/// The objects that the migrations create, as MariaDB 10.11 describes them. A test compares this
/// file and, with `UPDATE_DOCS=1`, writes it.
const NEEDED: &str = include_str!("../schema/needed.tsv");

/// What a database lacks of this program's schema.
pub(crate) async fn faults(conn: &mut MySqlConnection) -> Result<Vec<SchemaFault>> {
    let needed = SchemaObject::list(NEEDED);
    let mut found = objects(conn).await?;
    for object in &mut found {
        let same = |it: &&SchemaObject| it.kind == object.kind && it.name == object.name;
        if let Some(it) = needed.iter().find(same)
            && alike(&it.definition) == alike(&object.definition)
        {
            object.definition.clone_from(&it.definition);
        }
    }
    Ok(schema_faults(&needed, &found))
}

/// All schema objects of a database.
async fn objects(conn: &mut MySqlConnection) -> Result<Vec<SchemaObject>> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(OBJECTS)
        .fetch_all(conn)
        .await
        .map_err(fault)?;
    Ok(rows.into_iter().map(SchemaObject::from).collect())
}

/// The part of a column's definition that MySQL and MariaDB show alike: they show integer widths,
/// defaults and expressions differently.
fn alike(definition: &str) -> String {
    let upto = |text: &str, mark: &str| text.split(mark).next().unwrap_or_default().to_owned();
    let mut text = upto(&upto(definition, " DEFAULT "), " AS (");
    for kind in ["tinyint", "smallint", "int", "bigint"] {
        if let Some(rest) = text.strip_prefix(&format!("{kind}("))
            && let Some((_, rest)) = rest.split_once(')')
        {
            text = format!("{kind}{rest}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_servers_say_of_a_column_is_alike() {
        for (maria, mysql) in [
            ("int(11) NOT NULL DEFAULT 0", "int NOT NULL DEFAULT 0"),
            ("bigint(20)", "bigint"),
            (
                "varchar(255) NOT NULL DEFAULT 'x'",
                "varchar(255) NOT NULL DEFAULT x",
            ),
        ] {
            assert_eq!(alike(maria), alike(mysql));
        }
        for (one, other) in [
            ("int(11)", "bigint(20)"),
            ("int(11)", "int(11) NOT NULL"),
            ("varchar(10)", "varchar(255)"),
        ] {
            assert_ne!(alike(one), alike(other));
        }
    }
}
