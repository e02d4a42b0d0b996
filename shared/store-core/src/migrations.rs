//! The schema as text.

use std::fmt::Write as _;

/// The DDL that brings an empty database up to date: the statements that create the table of
/// applied migrations, in sqlx's form, and each migration (version, title, statements, checksum)
/// followed by its row in that table.
#[must_use]
pub fn ddl<'m>(
    record: &str,
    migrations: impl Iterator<Item = (i64, &'m str, &'m str, &'m [u8])>,
) -> String {
    let mut text = record.to_owned();
    for (version, title, sql, checksum) in migrations {
        let sql = sql.trim_end();
        // Writing to a string cannot fail.
        let checksum = checksum.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let _ = write!(
            text,
            "\n-- {version:04} {title}\n\n{sql}\n\n\
             INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)\n\
             VALUES ({version}, '{title}', TRUE, X'{checksum}', 0);\n"
        );
    }
    text
}
