//! Projections of finished sends: stored when the sends end, read with the window.

use mainspring_shared::agent::ContextSpec;
use mainspring_shared::id::SessionKey;
use mainspring_shared::session::projection::{Projected, Projection, SendDigest, VERSION};

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::statement;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::Tx;

/// Stores projections, each replacing one that begins at the same message.
pub(crate) async fn save(tx: &mut Tx, key: SessionKey, projections: &[Projection]) -> Result<()> {
    for projection in projections {
        statement(sql!("projections/save"))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(projection.from_seq)
            .bind(projection.to_seq)
            .bind(projection.send_id.0)
            .bind(projection.version)
            .bind(json(&projection.left)?)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// The projections for the first sends of a window that begins here.
pub(crate) async fn shown(
    conn: &mut Conn,
    key: SessionKey,
    begin: i64,
    context: &ContextSpec,
) -> Result<Projected> {
    if !context.representation.is_stored() {
        return Ok(Projected::default());
    }
    let rows = statement(sql!("projections/window"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(begin)
        .fetch_all(conn)
        .await?;
    let Some(first) = rows.first() else {
        return Ok(Projected::default());
    };
    let first_seq: i64 = Cells::new(first, "sessions").get("first_seq")?;
    // An unreadable projection ends the sequence, as a missing one does.
    let known = rows.iter().filter_map(|row| read(row).ok());
    let known = known.map(|(_, projection)| projection).collect();
    Ok(Projected::of(known, begin.max(first_seq), context))
}

/// A projection with its session.
pub(crate) fn read(row: &Row) -> Result<(SessionKey, Projection)> {
    let mut cells = Cells::new(row, "projections");
    let key = cells.key()?;
    fields(&mut cells)
        .map(|projection| (key, projection))
        .map_err(|fault| fault.of_row(|| key.to_string()))
}

fn fields(cells: &mut Cells<'_>) -> Result<Projection> {
    let version = cells.get("version")?;
    Ok(Projection {
        from_seq: cells.get("from_seq")?,
        to_seq: cells.get("to_seq")?,
        send_id: cells.send_id()?,
        version,
        // Another version's digest is left for that version to read.
        left: if version == VERSION {
            cells.json("digest")?
        } else {
            SendDigest::default()
        },
    })
}
