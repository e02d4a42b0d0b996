//! What workers learned about providers' token counts.

use async_trait::async_trait;
use mainspring_shared::model::Calibration;
use mainspring_shared::store;
use mainspring_shared::store::{CalibrationRecord, Calibrations};
use serde::Serialize;

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::statement;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};

#[async_trait]
impl Calibrations for SqlStore {
    async fn save_calibrations(&self, learned: Vec<CalibrationRecord>) -> store::Result<()> {
        self.write(learned, |tx, learned| Box::pin(save(tx, learned)))
            .await
    }

    async fn list_calibrations(&self, limit: u32) -> store::Result<Vec<CalibrationRecord>> {
        self.read(move |conn| Box::pin(list(conn, limit))).await
    }
}

/// A record as the statement's parameter.
#[derive(Serialize)]
struct LearnedCells<'r> {
    provider: &'r str,
    model: &'r str,
    ratio: i64,
    counts: u32,
}

async fn save(tx: &mut Tx, learned: Vec<CalibrationRecord>) -> Result<()> {
    let now = tx.now;
    let rows = learned.iter().map(|record| LearnedCells {
        provider: &record.provider,
        model: &record.model,
        ratio: record.calibration.millionths(),
        counts: record.calibration.counts(),
    });
    statement(sql!("calibrations/save"))
        .bind(json(&rows.collect::<Vec<_>>())?)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

async fn list(conn: &mut Conn, limit: u32) -> Result<Vec<CalibrationRecord>> {
    let rows = statement(sql!("calibrations/list"))
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await?;
    rows.iter().map(record).collect()
}

fn record(row: &Row) -> Result<CalibrationRecord> {
    let mut cells = Cells::new(row, "calibrations");
    let (provider, model) = (cells.get("provider")?, cells.get("model")?);
    let (ratio, counts): (i64, i64) = (cells.get("ratio")?, cells.get("counts")?);
    Ok(CalibrationRecord {
        provider,
        model,
        calibration: Calibration::stored(ratio, u32::try_from(counts).unwrap_or(u32::MAX)),
    })
}
