//! Calibrations of token estimates, which workers learn from providers' counts.

use async_trait::async_trait;
use mainspring_shared::model::Calibration;
use mainspring_shared::store::{CalibrationRecord, Calibrations, Result};

use crate::columns::text;
use crate::retry::{execute, fetch, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

#[async_trait]
impl Calibrations for PostgresStore {
    async fn save_calibrations(&self, learned: Vec<CalibrationRecord>) -> Result<()> {
        let owned = |name: &str| text(name).into_owned();
        let providers = learned.iter().map(|it| owned(&it.provider));
        let providers: Vec<String> = providers.collect();
        let models: Vec<String> = learned.iter().map(|it| owned(&it.model)).collect();
        let calibrations = || learned.iter().map(|it| it.calibration);
        let ratios: Vec<i64> = calibrations().map(|it| it.millionths()).collect();
        let counts: Vec<i64> = calibrations().map(|it| i64::from(it.counts())).collect();
        execute(&self.pools.writers, || {
            sql!("calibrations/save")
                .bind(self.at.map(|at| at.0))
                .bind(&providers)
                .bind(&models)
                .bind(&ratios)
                .bind(&counts)
        })
        .await
        .map(|_| ())
    }

    async fn list_calibrations(&self, limit: u32) -> Result<Vec<CalibrationRecord>> {
        let rows = fetch(&self.pools.claimers, || {
            sql!("calibrations/list").bind(i64::from(limit))
        });
        let records = rows.await?;
        let records = records.iter().map(|row| {
            let mut fields = Fields::new(row, "calibrations");
            let (provider, model) = (fields.take("provider")?, fields.take("model")?);
            let ratio: i64 = fields.take("ratio")?;
            let counts: i64 = fields.take("counts")?;
            let counts = u32::try_from(counts).unwrap_or(u32::MAX);
            Ok(CalibrationRecord {
                provider,
                model,
                calibration: Calibration::stored(ratio, counts),
            })
        });
        records.collect()
    }
}
