//! What an ordinary Rust program uses of the standard library: processes, files, directories, the environment, time,
//! formatting, collections, panics. It prints the same on every kernel and in every run; something that is not as it
//! should be ends it with a panic.

mod files;
mod processes;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};
use std::{env, io};

/// The results of the tests; an error of the system ends the program with exit status 1.
type Outcome = io::Result<()>;

fn main() -> Outcome {
    // As a child of itself the program does what the first argument says.
    if let Some(role) = env::args().nth(1) {
        return processes::play(&role);
    }
    println!("hello");
    environment();
    processes::test()?;
    files::test()?;
    time();
    collections();
    panics();
    println!("done");
    Ok(())
}

fn environment() {
    let own = env::current_exe().expect("the path of this program");
    assert!(own.is_absolute(), "{own:?}");
    assert_eq!(env::args().count(), 1);
    assert_eq!(env::var("HELLO_RUST_IS_NOT_SET"), Err(env::VarError::NotPresent));
    let directory = env::current_dir().expect("a working directory");
    env::set_current_dir("/").expect("the root");
    assert_eq!(env::current_dir().expect("a working directory").to_str(), Some("/"));
    env::set_current_dir(directory).expect("the first working directory");
    println!("environment");
}

fn time() {
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    assert!(start.elapsed() >= Duration::from_millis(20));
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    assert!(since_1970.as_secs() > 1_600_000_000);
    println!("time");
}

fn collections() {
    // The hash map takes its seed from the kernel.
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut number = 1u64;
    for _ in 0..300_000 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *counts.entry(number >> 54).or_default() += 1;
    }
    let sorted: BTreeMap<_, _> = counts.iter().collect();
    let most = sorted.iter().max_by_key(|(_, count)| **count).expect("there are counts");
    println!("{} different, most often {} ({} times)", sorted.len(), most.0, most.1);
    let mut text: Vec<String> = (0..20_000).map(|n| format!("{:08x}", n * 2_654_435_761u64 % 4_294_967_296)).collect();
    text.sort();
    println!("{} {} {:.3e}", text[0], text[19_999], f64::from(1u32 << 31).sqrt());
}

fn panics() {
    // This program is built to abort on a panic: only a child can show one.
    println!("a panic: {}", processes::status_of("panic").expect("a child"));
}
