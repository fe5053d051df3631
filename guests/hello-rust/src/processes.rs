//! `std::process`: children, their streams and their ends.

use crate::Outcome;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio, exit};

fn this_program(role: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(role);
    Ok(command)
}

/// What the program does as a child of itself.
pub fn play(role: &str) -> Outcome {
    match role {
        "say" => {
            println!("HELLO is {:?}", std::env::var("HELLO").unwrap_or_default());
            eprintln!("arguments: {:?}", std::env::args().skip(2).collect::<Vec<_>>());
        }
        "exit-7" => exit(7),
        "upper" => {
            for line in io::stdin().lock().lines() {
                println!("{}", line?.to_uppercase());
            }
        }
        "much" => {
            let line = [b'x'; 1000];
            (0..2000).try_for_each(|_| io::stdout().write_all(&line))?;
        }
        "sleep" => std::thread::sleep(std::time::Duration::from_secs(1000)),
        "panic" => panic!("as asked"),
        other => panic!("no role is called {other}"),
    }
    Ok(())
}

/// How a child in this role ends, in words.
pub fn status_of(role: &str) -> io::Result<String> {
    let status = this_program(role)?.stderr(Stdio::null()).status()?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "neither".to_owned(),
    })
}

pub fn test() -> Outcome {
    output()?;
    ends()?;
    streams()?;
    pipeline()?;
    many()
}

fn output() -> Outcome {
    let output = this_program("say")?.args(["one", "two words"]).env("HELLO", "a value").output()?;
    assert!(output.status.success(), "{output:?}");
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let output = this_program("say")?.env_clear().current_dir("/").output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let output = this_program("much")?.output()?;
    println!("much: {} bytes", output.stdout.len());
    Ok(())
}

fn ends() -> Outcome {
    println!("{}", status_of("exit-7")?);
    let mut child = this_program("sleep")?.spawn()?;
    assert!(child.try_wait()?.is_none());
    child.kill()?;
    println!("killed by signal {:?}", child.wait()?.signal());
    let error = Command::new("/no/such/program").spawn().expect_err("there is no such program");
    println!("{:?}", error.kind());
    Ok(())
}

fn streams() -> Outcome {
    let mut child = this_program("upper")?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    for word in ["fork", "shares", "everything"] {
        writeln!(input, "{word}")?;
    }
    drop(input);
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    assert!(child.wait()?.success());
    println!("{}", text.trim().replace('\n', " "));
    Ok(())
}

/// Three children in a row, the output of each the input of the next.
fn pipeline() -> Outcome {
    let mut first = this_program("much")?.stdout(Stdio::piped()).spawn()?;
    let middle_input = first.stdout.take().expect("a pipe");
    let mut middle = this_program("upper")?.stdin(middle_input).stdout(Stdio::piped()).spawn()?;
    let mut text = Vec::new();
    middle.stdout.take().expect("a pipe").read_to_end(&mut text)?;
    assert!(first.wait()?.success() && middle.wait()?.success());
    println!("through two: {} bytes, {} of them X", text.len(), text.iter().filter(|&&byte| byte == b'X').count());
    Ok(())
}

fn many() -> Outcome {
    let children: io::Result<Vec<Child>> = (0..20).map(|_| this_program("exit-7")?.spawn()).collect();
    let mut sum = 0;
    for mut child in children? {
        sum += child.wait()?.code().unwrap_or(0);
    }
    println!("20 at once: {sum}");
    Ok(())
}
