//! The examples run, and check what comes out of them themselves.

#[path = "../examples/riscv/main.rs"]
mod riscv;

#[test]
fn riscv() {
    riscv::main().expect("its guests count right");
}
