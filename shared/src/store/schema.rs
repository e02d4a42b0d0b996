//! Which program works on which version of the schema.

use std::cmp::Ordering;

use super::{Error, Result};

/// Whether a program that brings version `needed` of the schema works on version `found`. A newer one it works on if
/// that says so: `oldest` is what the database notes as the version of the oldest program that does, none where it
/// notes nothing. So two releases run side by side while one replaces the other, in either direction.
///
/// Fails with `SchemaMissing` or `SchemaNewer`.
pub fn schema_fits(found: i64, needed: i64, oldest: Option<i64>) -> Result<()> {
    match found.cmp(&needed) {
        Ordering::Less => Err(Error::SchemaMissing { found, needed }),
        Ordering::Equal => Ok(()),
        Ordering::Greater if oldest.is_some_and(|oldest| oldest <= needed) => Ok(()),
        Ordering::Greater => Err(Error::SchemaNewer {
            found,
            known: needed,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_works_on_its_own_version_and_on_newer_ones_that_took_nothing_from_it() {
        for (found, oldest, fits) in [
            (7, None, true),
            (7, Some(3), true),
            (8, None, false),
            (8, Some(3), true),
            (8, Some(7), true),
            (8, Some(8), false),
            // What the program brings is not there yet, whatever is noted.
            (6, Some(3), false),
            (0, None, false),
        ] {
            let result = schema_fits(found, 7, oldest);
            assert_eq!(result.is_ok(), fits, "{found}, {oldest:?}: {result:?}");
        }
        assert!(matches!(
            schema_fits(8, 7, Some(8)),
            Err(Error::SchemaNewer { found: 8, known: 7 })
        ));
        assert!(matches!(
            schema_fits(6, 7, None),
            Err(Error::SchemaMissing {
                found: 6,
                needed: 7
            })
        ));
    }
}
