//! The form of an activation in Redis: `TENANT.SESSION` for each session, separated by commas, the
//! session as 32 hex digits. An operator can read it.

use std::convert::Infallible;
use std::fmt::Write as _;

use apalis_core::backend::codec::Codec;
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::queue::{ACTIVATION_SESSIONS_MAX, Activation};
use uuid::Uuid;

/// Encodes and decodes jobs. Decoding never fails: an error would end the worker that fetched the
/// job, so what cannot be read is left out, and the sweep finds the session anyway.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JobCodec;

impl Codec<Activation> for JobCodec {
    type Error = Infallible;
    type Compact = Vec<u8>;

    fn encode(&self, activation: &Activation) -> Result<Vec<u8>, Infallible> {
        Ok(write(&activation.sessions).into_bytes())
    }

    fn decode(&self, job: &Vec<u8>) -> Result<Activation, Infallible> {
        Ok(read(job))
    }
}

/// The jobs for some activations: none is empty, and none names more sessions than a job may.
pub(crate) fn jobs(activations: &[Activation]) -> Vec<String> {
    activations
        .iter()
        .flat_map(|activation| activation.sessions.chunks(ACTIVATION_SESSIONS_MAX))
        .map(write)
        .collect()
}

fn write(sessions: &[SessionKey]) -> String {
    // A tenant of up to ten digits, a dot, the session, a comma.
    let mut job = String::with_capacity(sessions.len() * 44);
    for (n, key) in sessions.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(job, "{comma}{}.{}", key.tenant.0, key.session.0.as_simple());
    }
    job
}

fn read(job: &[u8]) -> Activation {
    let text = std::str::from_utf8(job).unwrap_or_default();
    let sessions = text
        .split(',')
        .filter_map(|entry| {
            let (tenant, session) = entry.split_once('.')?;
            Some(SessionKey {
                tenant: TenantId(tenant.parse().ok()?),
                session: SessionId(Uuid::try_parse(session).ok()?),
            })
        })
        .take(ACTIVATION_SESSIONS_MAX)
        .collect();
    Activation { sessions }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u128) -> SessionKey {
        SessionKey {
            tenant: TenantId(7),
            session: SessionId(Uuid::from_u128(n)),
        }
    }

    #[test]
    fn a_job_reads_back_as_it_was_written() {
        let activation = Activation {
            sessions: (0..16).map(key).collect(),
        };
        let job = JobCodec.encode(&activation).unwrap();
        assert_eq!(JobCodec.decode(&job), Ok(activation));
        assert_eq!(
            write(&[key(1), key(2)]),
            "7.00000000000000000000000000000001,7.00000000000000000000000000000002"
        );
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let good = write(&[key(3)]);
        for job in [&b"\xff\xfe"[..], b"", b"7", b"x.y", b"{}"] {
            assert_eq!(read(job).sessions, [], "{job:?}");
        }
        assert_eq!(
            read(format!("nonsense,{good},7.").as_bytes()).sessions,
            [key(3)]
        );
    }

    #[test]
    fn an_activation_of_many_sessions_becomes_several_jobs() {
        let many = Activation {
            sessions: (0..33).map(key).collect(),
        };
        let none = Activation { sessions: vec![] };
        let jobs = jobs(&[many, none]);
        let sizes: Vec<_> = jobs
            .iter()
            .map(|job| read(job.as_bytes()).sessions.len())
            .collect();
        assert_eq!(sizes, [16, 16, 1]);
    }
}
