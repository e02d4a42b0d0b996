//! Fault points: places in the code that a simulation can make fail and that wrapping a store,
//! queue or bus cannot reach. In release builds they are constants and cost nothing.

#[cfg(debug_assertions)]
use std::cell::RefCell;

/// Decides from its name whether a point fails.
#[cfg(debug_assertions)]
type Decide = Box<dyn FnMut(&'static str) -> bool>;

#[cfg(debug_assertions)]
thread_local! {
    /// Every simulated world has its own thread, and so its own decisions.
    static DECIDE: RefCell<Option<Decide>> = const { RefCell::new(None) };
}

/// Whether this point fails now. False without a simulation in this thread.
#[cfg(debug_assertions)]
pub fn buggify(point: &'static str) -> bool {
    DECIDE.with(|decide| {
        // A fault point reached inside the decision function itself does not fail.
        let mut decide = decide.try_borrow_mut().ok();
        let decide = decide.as_mut().and_then(|decide| decide.as_mut());
        decide.is_some_and(|decide| decide(point))
    })
}

/// Whether this point fails now: never in release builds.
#[cfg(not(debug_assertions))]
#[inline]
pub const fn buggify(_: &'static str) -> bool {
    false
}

/// Sets the function that decides which points fail in this thread, until the next call. With none,
/// no point fails.
#[cfg(debug_assertions)]
pub fn set_buggify(decide: Option<Box<dyn FnMut(&'static str) -> bool>>) {
    DECIDE.with(|now| *now.borrow_mut() = decide);
}

/// No-op in release builds.
#[cfg(not(debug_assertions))]
pub fn set_buggify(_: Option<Box<dyn FnMut(&'static str) -> bool>>) {}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_point_fails_where_and_when_it_is_told_to() {
        assert!(!buggify("a"), "nobody decides");
        let mut times = 0;
        set_buggify(Some(Box::new(move |point| {
            times += usize::from(point == "a");
            point == "a" && times == 2
        })));
        let seen = ["a", "b", "a", "a"].map(buggify);
        assert_eq!(seen, [false, false, true, false]);
        let elsewhere = std::thread::spawn(|| buggify("a")).join();
        assert!(
            !elsewhere.expect("it ends"),
            "another thread is another world"
        );
        set_buggify(None);
        assert!(!buggify("a"));
    }
}
