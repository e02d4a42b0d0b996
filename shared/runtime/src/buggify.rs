//! Fault points: places in the code that a simulation makes fail where no store, queue or bus that is
//! wrapped around it can reach. In a release they are constants, and cost nothing.

#[cfg(debug_assertions)]
use std::cell::RefCell;

/// What decides whether a point fails, by its name.
#[cfg(debug_assertions)]
type Decide = Box<dyn FnMut(&'static str) -> bool>;

#[cfg(debug_assertions)]
thread_local! {
    /// A simulated world has one thread, and its own decisions.
    static DECIDE: RefCell<Option<Decide>> = const { RefCell::new(None) };
}

/// Whether the point of this name fails now. Only where a simulation in this thread says so.
#[cfg(debug_assertions)]
pub fn buggify(point: &'static str) -> bool {
    DECIDE.with(|decide| {
        // A decision that comes to a point itself passes it.
        let mut decide = decide.try_borrow_mut().ok();
        let decide = decide.as_mut().and_then(|decide| decide.as_mut());
        decide.is_some_and(|decide| decide(point))
    })
}

/// Whether the point of this name fails now: never in a release.
#[cfg(not(debug_assertions))]
#[inline]
pub const fn buggify(_: &'static str) -> bool {
    false
}

/// Lets `decide` say which points fail in this thread, until the next call; none of them with none.
#[cfg(debug_assertions)]
pub fn set_buggify(decide: Option<Box<dyn FnMut(&'static str) -> bool>>) {
    DECIDE.with(|now| *now.borrow_mut() = decide);
}

/// Without effect in a release.
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
