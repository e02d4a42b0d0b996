//! The second barrier between tenants: the server's row-level security.
//!
//! The first one is that every statement names the tenant of its rows. With this one, a statement
//! on behalf of a tenant ([`scoped`](mainspring_shared::store::scoped)) runs under a role that
//! cannot see rows of other tenants, so a statement that fails to name its tenant finds nothing
//! that it should not. Groups of items of several tenants, and the system's own work, run as the
//! tables' owner, to whom the policies do not apply and cost nothing.

use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Denial, Error, Result};
use sqlx::{Connection, PgConnection, Row};

use crate::fault::Fault;
use crate::retry::sql;
use crate::settings::SchemaPolicy;

/// What an operator must do if this user may not.
const BY_HAND: &str = "row_security needs a role that this user may act under: \
    CREATE ROLE mainspring_tenant NOLOGIN; GRANT mainspring_tenant TO this user";

/// The statements to run after the schema's DDL for [`Settings::row_security`](crate::Settings), as
/// a user who may create roles and owns the tables.
pub fn ddl() -> String {
    format!(
        "{};\n\n{};\n",
        include_str!("../sql/row_security/role.sql").trim_end(),
        include_str!("../sql/row_security/policies.sql").trim_end(),
    )
}

/// Ensures that every table has its policy and that this user may act under the role. Adds what is
/// missing if the policy creates the schema; otherwise fails with `Denied`, and says what is
/// missing.
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

/// Whether the role exists and this user may act under it. Determined by trying, since what a
/// membership allows depends on the server's version.
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

/// A table without its policy, if there is one.
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

/// Adds the policies, under a lock: of two processes that add one at the same time, one would fail.
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

/// Restricts a connection to the rows of one tenant.
pub(crate) async fn enter(connection: &mut PgConnection, tenant: TenantId) -> sqlx::Result<()> {
    let query = sql!("row_security/enter").bind(tenant.0);
    query.execute(connection).await?;
    Ok(())
}

/// Lifts the restriction of a connection. If this fails, the connection must not be reused.
pub(crate) async fn leave(connection: &mut PgConnection) -> sqlx::Result<()> {
    sql!("row_security/leave").execute(connection).await?;
    Ok(())
}
