//! Runs a target on files: `cargo run -p foldspace-fuzz --example one TARGET FILE...`. What a fuzzer has found is tried again by it.

use std::time::Instant;
use std::{env, fs};

fn main() {
    let mut args = env::args().skip(1);
    let target = args.next().expect("a target");
    for path in args {
        let bytes = fs::read(&path).expect("a file");
        let start = Instant::now();
        foldspace_fuzz::run(&target, &bytes);
        println!("{path}: {:?}", start.elapsed());
    }
}
