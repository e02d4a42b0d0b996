//! `mainspring migrate`

use mainspring_shared::store::{SchemaFault, SchemaObject, SchemaWrong};

use crate::config::{Config, Migrate};

use crate::args::MigrateArgs;
use crate::failure::{Exit, Failure};
use crate::{output, wiring};

pub(crate) async fn run(args: &MigrateArgs, config: &Config) -> Result<(), Failure> {
    if args.print {
        return output::raw(&wiring::ddl(config));
    }
    if args.verify {
        return verify(config).await;
    }
    let store = wiring::store(config, Migrate::Create).await?;
    let info = store
        .check()
        .await
        .map_err(|error| wiring::store_failure(config, &error))?;
    let database = wiring::database(config);
    output::note(&format!(
        "{database}: the schema is at version {} ({})",
        info.schema, info.server
    ));
    for (name, store) in wiring::other_databases(config, Migrate::Create).await {
        let info = store?.check().await;
        let info = info.map_err(|error| wiring::store_failure(config, &error))?;
        output::note(&format!(
            "{name}: the schema is at version {} ({})",
            info.schema, info.server
        ));
    }
    Ok(())
}

/// Prints what the database lacks as a script on stdout, and nothing else there.
async fn verify(config: &Config) -> Result<(), Failure> {
    let store = wiring::store_to_read(config).await?;
    let failed = |error| wiring::store_failure(config, &error);
    let info = store.check().await.map_err(failed)?;
    let faults = store.schema_faults().await.map_err(failed)?;
    let database = wiring::database(config);
    if faults.is_empty() {
        output::note(&format!(
            "{database}: the schema is complete, at version {}",
            info.schema
        ));
        return Ok(());
    }
    let script = faults.iter().map(told).collect::<String>();
    output::raw(&script)?;
    let count = faults.len();
    Err(Failure::new(
        Exit::Failure,
        format!("{database}: {count} objects differ from the schema"),
    )
    .next(
        "run the printed statements as the tables' owner, then `mainspring migrate --verify` \
           again",
    ))
}

/// Describes one fault, with the statement that fixes it if that is known.
fn told(fault: &SchemaFault) -> String {
    let SchemaObject {
        kind,
        name,
        definition,
    } = &fault.needed;
    match &fault.wrong {
        SchemaWrong::Missing(ddl) => format!("-- the {kind} {name} is missing\n{ddl};\n"),
        SchemaWrong::Differs(found) => {
            format!("-- the {kind} {name} is {found}, not {definition}\n")
        }
    }
}
