#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| foldspace_fuzz::run("strace", bytes));
