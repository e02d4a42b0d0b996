//! Moments and victims of faults, drawn from a seed.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy as _;

use super::asked;
use super::cluster::say;

/// The seed of this process's faults, `MAINSPRING_FAULT_SEED` or a random one, and for each test how
/// many numbers it has drawn.
struct Draws {
    seed: u64,
    drawn: Mutex<BTreeMap<String, u64>>,
}

fn draws() -> &'static Draws {
    static DRAWS: OnceLock<Draws> = OnceLock::new();
    DRAWS.get_or_init(|| {
        let random = || (OsEntropy.fraction() * f64::from(u32::MAX)) as u64;
        Draws {
            seed: asked("MAINSPRING_FAULT_SEED").unwrap_or_else(random),
            drawn: Mutex::default(),
        }
    })
}

/// The next number from 0 to below 1 of this test, whose body runs in a thread of its name. Its
/// clients run in others, which draw from one sequence together.
fn fraction() -> f64 {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("clients");
    let draws = draws();
    let n = {
        let mut drawn = draws.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let n = drawn.entry(test.to_owned()).or_insert(0);
        if *n == 0 {
            say(&format!("{test}: MAINSPRING_FAULT_SEED={}", draws.seed));
        }
        *n += 1;
        *n
    };
    let of_test = test
        .bytes()
        .fold(draws.seed, |hash, byte| mixed(hash ^ u64::from(byte)));
    (mixed(of_test.wrapping_add(n)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number whose bits all depend on all of those of another one (the end of `splitmix64`).
const fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A random duration between two bounds.
pub fn between(least: Duration, most: Duration) -> Duration {
    least + most.saturating_sub(least).mul_f64(fraction())
}

/// A random number below `count`.
pub fn any_of(count: usize) -> usize {
    ((count as f64 * fraction()) as usize).min(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_spread_over_their_range() {
        let drawn: Vec<usize> = (0..1_000).map(|_| any_of(10)).collect();
        for n in 0..10 {
            let times = drawn.iter().filter(|drawn| **drawn == n).count();
            assert!((50..200).contains(&times), "{n} was drawn {times} times");
        }
        let (least, most) = (Duration::from_millis(5), Duration::from_millis(9));
        assert!((0..100).all(|_| (least..most).contains(&between(least, most))));
    }
}
