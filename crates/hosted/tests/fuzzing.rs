//! The example `fuzz` runs, bounded, and checks itself what comes out.

#[path = "../examples/fuzz/main.rs"]
mod fuzz;

#[test]
fn fuzz() {
    fuzz::fuzz(5_000).expect("it finds what was planted, and nothing else");
}
