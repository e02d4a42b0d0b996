//! The second wall between tenants: the server's own row-level security.
//!
//! The first one is that every statement names the tenant of its rows. With this one, a statement on behalf of a tenant
//! ([`scoped`](mainspring_shared::store::scoped)) runs under a role for which rows of other tenants are not there, so that
//! one which forgot to name its tenant finds nothing that it should not. Groups of items of several tenants, and what the
//! system does on its own, run as the tables' owner, whom the policies do not concern and cost nothing.

use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Denial, Error, Result};
use sqlx::{Connection, PgConnection, Row};

use crate::retry::{Fault, sql};
use crate::settings::SchemaPolicy;

/// What is to be done by hand where this user may not do it.
const BY_HAND: &str = "row_security needs a role that this user may act under: \
    CREATE ROLE mainspring_tenant NOLOGIN; GRANT mainspring_tenant TO this user";

/// What is executed for [`Settings::row_security`](crate::Settings) behind the schema's own statements, by whoever may
/// create roles and owns the tables.
pub fn ddl() -> String {
    format!(
        "{};\n\n{};\n",
        include_str!("../sql/row_security/role.sql").trim_end(),
        include_str!("../sql/row_security/policies.sql").trim_end(),
    )
}

/// Sees to it that every table has its policy and that this user may act under the role. Adds what lacks where the
/// schema is created; else fails with `Denied`, and says what is missing.
pub(crate) async fn prepare(connection: &mut PgConnection, policy: SchemaPolicy) -> Result<()> {
    let creates = policy == SchemaPolicy::Create;
    if creates && !may_act(connection).await? {
        add_role(connection).await?;
    }
    if creates && lacking(connection).await?.is_some() {
        add_policies(connection).await?;
    }
    if !may_act(connection).await? {
        return Err(denied(BY_HAND.into()));
    }
    match lacking(connection).await? {
        None => Ok(()),
        Some(table) => Err(denied(format!(
            "row_security is set, and the table {table} keeps tenants apart by no policy, or grants the role \
             mainspring_tenant nothing: run `mainspring migrate` with the same setting as the tables' owner"
        ))),
    }
}

/// Whether the role is there and this user may act under it: tried, since what a membership allows depends on the
/// server's version.
async fn may_act(connection: &mut PgConnection) -> Result<bool> {
    match enter(connection, TenantId::DEFAULT).await {
        Ok(()) => {
            leave(connection).await.map_err(Fault::from)?;
            Ok(true)
        }
        Err(error) if error.as_database_error().is_some() => Ok(false),
        Err(error) => Err(Fault::from(error).into()),
    }
}

/// A table that does not keep tenants apart.
async fn lacking(connection: &mut PgConnection) -> Result<Option<String>> {
    let row = sql!("row_security/found").fetch_one(connection).await;
    let lacking = row.and_then(|row| row.try_get("lacking"));
    Ok(lacking.map_err(Fault::from)?)
}

async fn add_role(connection: &mut PgConnection) -> Result<()> {
    let Err(error) = sql!("row_security/role").execute(connection).await else {
        return Ok(());
    };
    let error = Error::from(Fault::from(error));
    if let Error::Denied { source, .. } = error {
        return Err(denied(format!("{source}; {BY_HAND}")));
    }
    Err(error)
}

/// Under a lock of its own: of two processes that add a policy at once, one fails.
async fn add_policies(connection: &mut PgConnection) -> Result<()> {
    let mut tx = connection.begin().await.map_err(Fault::from)?;
    for statement in [sql!("row_security/lock"), sql!("row_security/policies")] {
        statement.execute(&mut *tx).await.map_err(Fault::from)?;
    }
    tx.commit().await.map_err(Fault::from)?;
    Ok(())
}

fn denied(source: String) -> Error {
    Error::Denied {
        why: Denial::Rights,
        source: source.into(),
    }
}

/// Keeps a connection to what one tenant has.
pub(crate) async fn enter(connection: &mut PgConnection, tenant: TenantId) -> sqlx::Result<()> {
    let query = sql!("row_security/enter").bind(tenant.0);
    query.execute(connection).await?;
    Ok(())
}

/// Gives a connection back to the program. One for which this fails is not to be used again.
pub(crate) async fn leave(connection: &mut PgConnection) -> sqlx::Result<()> {
    sql!("row_security/leave").execute(connection).await?;
    Ok(())
}
