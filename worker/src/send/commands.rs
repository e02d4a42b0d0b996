//! The commands of the send's machine, one file each: methods of [`Run`](super::run::Run) that
//! return the machine's next event if it has already happened.

mod abort_calls;
mod abort_deciding;
mod ask;
mod decide;
mod end;
mod fold;
mod park;
mod release;
mod run_calls;
mod stop_calls;
mod store_results;
mod store_round;
mod wait;

pub(crate) use fold::room_of;
pub(super) use fold::{Beside, Folding};

#[cfg(test)]
mod tests {
    use mainspring_shared::send::machine::End;

    use super::super::run::Run;

    fn bytes_of<F>(_: impl FnOnce(&'static mut Run<'static>) -> F) -> usize {
        size_of::<F>()
    }

    /// Each send has several of these futures, one after the other; they are cheap to allocate as
    /// long as they are small.
    #[test]
    fn what_a_send_does_between_two_waits_takes_little_room() {
        let ask = bytes_of(|run| run.ask(0, 1));
        let store = bytes_of(Run::store_round);
        let end = bytes_of(|run| run.end(End::Cancelled));
        for (what, bytes) in [("ask", ask), ("store_round", store), ("end", end)] {
            assert!(bytes < 3 << 10, "{what}: {bytes}");
        }
    }
}
