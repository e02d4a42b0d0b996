//! Compatibility of programs with schema versions, and checks that a schema is what its version says.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Error, Result};

/// The version of the protocol between processes: the jobs of the queue, the bus messages, how
/// sessions are handed over, and what stored JSON means. A release whose processes would be
/// misunderstood by those of the release before it increments this, and its migration writes the
/// number into `schema_compatibility.protocol`.
pub const PROTOCOL: u32 = 1;

/// What a database requires of programs that use it, as recorded by its newest migrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demands {
    /// The schema version of the oldest program that is compatible with it.
    pub oldest: i64,
    /// The minimum [`PROTOCOL`] that programs must speak.
    pub protocol: i64,
}

/// Checks that a program built for schema version `needed` works on version `found`.
///
/// On a newer schema it does if the schema's `demands` say so; without demands it does not. So two
/// releases can run side by side while one replaces the other, in either direction.
///
/// Fails with `SchemaMissing`, `SchemaNewer` or `ProtocolOlder`.
pub fn schema_fits(found: i64, needed: i64, demands: Option<Demands>) -> Result<()> {
    match (found.cmp(&needed), demands) {
        (Ordering::Less, _) => Err(Error::SchemaMissing { found, needed }),
        (Ordering::Equal, _) => Ok(()),
        (Ordering::Greater, Some(Demands { oldest, protocol })) if oldest <= needed => {
            let spoken = i64::from(PROTOCOL);
            if protocol <= spoken {
                return Ok(());
            }
            Err(Error::ProtocolOlder {
                spoken,
                demanded: protocol,
            })
        }
        (Ordering::Greater, _) => Err(Error::SchemaNewer {
            found,
            known: needed,
        }),
    }
}

/// An object of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaObject {
    /// `table`, `column`, `constraint` or `index`.
    pub kind: String,
    /// The table's name; for an object of a table, prefixed by the table's name: `sends.status`.
    pub name: String,
    /// Its definition in the database's terms: a column's type, an index's statement. For a table
    /// it is empty, or the statement that creates it.
    pub definition: String,
}

impl From<(String, String, String)> for SchemaObject {
    /// Converts a row of kind, name and definition.
    fn from((kind, name, definition): (String, String, String)) -> Self {
        Self {
            kind,
            name,
            definition,
        }
    }
}

/// An object that a schema lacks, or that differs from what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFault {
    /// The object that should exist.
    pub needed: SchemaObject,
    /// What is wrong with it.
    pub wrong: SchemaWrong,
}

/// What is wrong with an object of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaWrong {
    /// It is missing; this statement adds it.
    Missing(String),
    /// It differs; this is its actual definition.
    Differs(String),
}

impl SchemaObject {
    /// Parses a list of objects written by [`SchemaObject::line`], one per line.
    pub fn list(text: &str) -> Vec<Self> {
        let objects = text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, '\t').map(str::to_owned);
            Some(Self {
                kind: parts.next()?,
                name: parts.next()?,
                definition: parts.next()?,
            })
        });
        objects.collect()
    }

    /// Formats it as one line of a list.
    pub fn line(&self) -> String {
        format!("{}\t{}\t{}\n", self.kind, self.name, self.definition)
    }

    fn table(&self) -> &str {
        self.name
            .split_once('.')
            .map_or(&*self.name, |(table, _)| table)
    }

    fn own_name(&self) -> &str {
        self.name
            .split_once('.')
            .map_or(&*self.name, |(_, name)| name)
    }

    /// The statement that adds it to a schema that has the objects before it in `needed`.
    fn ddl(&self, needed: &[Self]) -> String {
        let (table, name) = (self.table(), self.own_name());
        match &*self.kind {
            "column" => format!("ALTER TABLE {table} ADD COLUMN {name} {}", self.definition),
            "constraint" if self.definition.starts_with("PRIMARY KEY") => {
                format!("ALTER TABLE {table} ADD {}", self.definition)
            }
            "constraint" => {
                format!(
                    "ALTER TABLE {table} ADD CONSTRAINT {name} {}",
                    self.definition
                )
            }
            "table" if self.definition.is_empty() => {
                let of_kind = |kind: &'static str| {
                    let belongs = move |it: &&Self| it.kind == kind && it.table() == self.name;
                    needed.iter().filter(belongs)
                };
                let columns =
                    of_kind("column").map(|it| format!("{} {}", it.own_name(), it.definition));
                let constraints = of_kind("constraint").map(|it| {
                    if it.definition.starts_with("PRIMARY KEY") {
                        it.definition.clone()
                    } else {
                        format!("CONSTRAINT {} {}", it.own_name(), it.definition)
                    }
                });
                let parts: Vec<String> = columns.chain(constraints).collect();
                format!("CREATE TABLE {table} ({})", parts.join(", "))
            }
            // An index, or a table whose statement is known.
            _ => self.definition.clone(),
        }
    }
}

/// What a schema lacks of what a program needs, tables first. Additional objects are ignored. A
/// missing table's columns and constraints are created with it, but not its indexes.
pub fn schema_faults(needed: &[SchemaObject], found: &[SchemaObject]) -> Vec<SchemaFault> {
    let known: BTreeMap<(&str, &str), &SchemaObject> = found
        .iter()
        .map(|object| ((&*object.kind, &*object.name), object))
        .collect();
    let is_there = |table: &str| known.contains_key(&("table", table));
    let mut faults = Vec::new();
    for kind in ["table", "column", "constraint", "index"] {
        for object in needed.iter().filter(|object| object.kind == kind) {
            let comes_along = matches!(kind, "column" | "constraint") && !is_there(object.table());
            let there = known.get(&(kind, &*object.name));
            // Tables are compared by their columns and constraints.
            let differs =
                |there: &SchemaObject| kind != "table" && there.definition != object.definition;
            match there {
                None if !comes_along => faults.push(SchemaFault {
                    needed: object.clone(),
                    wrong: SchemaWrong::Missing(object.ddl(needed)),
                }),
                Some(there) if differs(there) => faults.push(SchemaFault {
                    needed: object.clone(),
                    wrong: SchemaWrong::Differs(there.definition.clone()),
                }),
                None | Some(_) => {}
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands(oldest: i64) -> Demands {
        let protocol = i64::from(PROTOCOL);
        Demands { oldest, protocol }
    }

    #[test]
    fn a_program_that_does_not_speak_what_a_newer_schema_demands_is_told_so() {
        let protocol = i64::from(PROTOCOL) + 1;
        let demands = Demands {
            protocol,
            ..demands(3)
        };
        let refused = schema_fits(8, 7, Some(demands)).expect_err("it is too old");
        assert_eq!(
            refused.to_string(),
            "this program speaks protocol 1, the database demands 2 or newer"
        );
        // A program's own migrations demand nothing that it does not support.
        schema_fits(7, 7, Some(demands)).expect("it is its own");
    }

    #[test]
    fn a_program_works_on_its_own_version_and_on_newer_ones_that_took_nothing_from_it() {
        for (found, oldest, fits) in [
            (7, None, true),
            (7, Some(3), true),
            (8, None, false),
            (8, Some(3), true),
            (8, Some(7), true),
            (8, Some(8), false),
            // The program's own migrations are not applied yet, whatever the demands say.
            (6, Some(3), false),
            (0, None, false),
        ] {
            let result = schema_fits(found, 7, oldest.map(demands));
            assert_eq!(result.is_ok(), fits, "{found}, {oldest:?}: {result:?}");
        }
        assert!(matches!(
            schema_fits(8, 7, Some(demands(8))),
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

    const NEEDED: &str = "table\tboats\t\n\
        column\tboats.id\tbigint NOT NULL\ncolumn\tboats.name\ttext\n\
        constraint\tboats.boats_pkey\tPRIMARY KEY (id)\nconstraint\tboats.boats_check\tCHECK ((id > 0))\n\
        index\tboats.boats_name\tCREATE INDEX boats_name ON boats (name)\n";

    fn told(found: &str) -> Vec<String> {
        let faults = schema_faults(&SchemaObject::list(NEEDED), &SchemaObject::list(found));
        let told = faults.into_iter().map(|fault| match fault.wrong {
            SchemaWrong::Missing(ddl) => ddl,
            SchemaWrong::Differs(found) => format!("{} is {found}", fault.needed.name),
        });
        told.collect()
    }

    #[test]
    fn what_is_missing_is_told_with_the_statement_that_adds_it() {
        assert!(told(NEEDED).is_empty());
        let more = format!("{NEEDED}table\tothers\t\ncolumn\tboats.more\ttext\n");
        assert!(told(&more).is_empty());
        let without = |line: &str| {
            let kept = NEEDED.lines().filter(|it| !it.contains(line));
            told(&kept.collect::<Vec<_>>().join("\n"))
        };
        assert_eq!(
            without("boats.name"),
            ["ALTER TABLE boats ADD COLUMN name text"]
        );
        assert_eq!(
            without("boats_name"),
            ["CREATE INDEX boats_name ON boats (name)"]
        );
        assert_eq!(
            without("boats_pkey"),
            ["ALTER TABLE boats ADD PRIMARY KEY (id)"]
        );
        assert_eq!(
            without("boats_check"),
            ["ALTER TABLE boats ADD CONSTRAINT boats_check CHECK ((id > 0))"]
        );
        assert_eq!(
            told(""),
            [
                "CREATE TABLE boats (id bigint NOT NULL, name text, PRIMARY KEY (id), \
                 CONSTRAINT boats_check CHECK ((id > 0)))",
                "CREATE INDEX boats_name ON boats (name)",
            ]
        );
    }

    #[test]
    fn what_is_something_else_is_told_as_it_is() {
        let other = NEEDED.replace("boats.name\ttext", "boats.name\tinteger");
        assert_eq!(told(&other), ["boats.name is integer"]);
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let lines = SchemaObject::list(NEEDED)
            .iter()
            .map(SchemaObject::line)
            .collect::<String>();
        assert_eq!(lines, NEEDED);
    }
}
