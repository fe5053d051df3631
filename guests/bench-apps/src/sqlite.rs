//! A fork server over SQLite: the target is initialised once, and forked for each execution, so that each finds it as it was.

use std::io;

use foldspace_guest_measure::pipe::Pipe;
use foldspace_guest_measure::process::{self, Child, Fork};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use rusqlite::{Connection, params};

/// Bytes of one value.
const VALUE: usize = 64 << 10;

pub fn rows() -> Vec<Row> {
    let row = |mib: usize| {
        let work = move |settings: &Settings| executions(settings, mib);
        let words = format!("an execution of SQLite behind a fork server, {mib} MiB resident");
        Row::new(format!("sqlite_{mib}"), words, "execution", work).needs_mib((mib + mib / 8 + 64) as u64)
    };
    [16, 64, 256, 1024].into_iter().map(row).collect()
}

fn executions(settings: &Settings, mib: usize) -> io::Result<Figures> {
    let server = Server::start(mib)?;
    let per_run = 10;
    // The first ones find everything cold.
    server.execute(3)?;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(9) {
        let (cost, done) = settings.counter.measure(|| server.execute(per_run));
        done?;
        runs.push(cost as f64 / per_run as f64);
    }
    server.end()?;
    Ok(runs.into())
}

/// The server as the fuzzer sees it: four bytes ask for an execution, four say the child's number, four its status.
struct Server {
    process: Child,
    control: Pipe,
    status: Pipe,
}

const RUN: [u8; 4] = *b"run\n";
const END: [u8; 4] = *b"end\n";

impl Server {
    fn start(mib: usize) -> io::Result<Server> {
        let (control, status) = (Pipe::new()?, Pipe::new()?);
        match process::fork()? {
            Fork::Child => process::exit(match serve(mib, &control, &status) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("bench-apps: the server: {error}");
                    // Whoever waits for an answer shall not wait for ever.
                    let _ = status.send(&[0xff; 4]);
                    1
                }
            }),
            Fork::Parent(process) => {
                let server = Server { process, control, status };
                // It says that it is up, as AFL's do.
                if server.status.receive::<4>()? != [0; 4] {
                    return Err(io::Error::other("the server did not come up"));
                }
                Ok(server)
            }
        }
    }

    fn execute(&self, times: usize) -> io::Result<()> {
        for _ in 0..times {
            self.control.send(&RUN)?;
            let _child: [u8; 4] = self.status.receive()?;
            if self.status.receive::<4>()? != [0; 4] {
                return Err(io::Error::other("an execution failed"));
            }
        }
        Ok(())
    }

    fn end(self) -> io::Result<()> {
        self.control.send(&END)?;
        self.process.wait()
    }
}

fn serve(mib: usize, control: &Pipe, status: &Pipe) -> io::Result<()> {
    let database = filled(mib).map_err(io::Error::other)?;
    status.send(&[0; 4])?;
    let mut number = 0u32;
    while control.receive::<4>()? == RUN {
        number += 1;
        match process::fork()? {
            Fork::Child => process::exit(i32::from(test_case(&database, number).is_err())),
            Fork::Parent(child) => {
                status.send(&child.pid().to_ne_bytes())?;
                let ended = child.wait();
                status.send(&u32::from(ended.is_err()).to_ne_bytes())?;
            }
        }
    }
    Ok(())
}

/// A database of about so many MiB, all of it in memory.
fn filled(mib: usize) -> rusqlite::Result<Connection> {
    let database = Connection::open_in_memory()?;
    database.execute_batch("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value BLOB); CREATE INDEX by_name ON item (name);")?;
    let value = vec![0x5au8; VALUE];
    database.execute_batch("BEGIN")?;
    {
        let mut insert = database.prepare("INSERT INTO item (name, value) VALUES (?1, ?2)")?;
        for number in 0..(mib << 20) / VALUE {
            insert.execute(params![format!("item {number}"), value])?;
        }
    }
    database.execute_batch("COMMIT")?;
    Ok(database)
}

/// A few statements that look at the database and change it: what a fuzzer's short input does. Their work does not grow with the database. The
/// item has its old name in each execution, or it were not found: nothing of the one before may be left.
fn test_case(database: &Connection, number: u32) -> rusqlite::Result<()> {
    let name = format!("item {}", number * 7 % 200);
    let found: i64 = database.query_row("SELECT id FROM item WHERE name = ?1", [&name], |row| row.get(0))?;
    database.execute("UPDATE item SET name = name || '!' WHERE id = ?1", [found])?;
    database.execute("INSERT INTO item (name, value) VALUES (?1, x'00ff')", [&name])?;
    let few = "SELECT count(*) FROM (SELECT 1 FROM item WHERE name > ?1 LIMIT 50)";
    let rows: i64 = database.query_row(few, [&name], |row| row.get(0))?;
    database.execute("DELETE FROM item WHERE id > ?1", [rows + 100_000])?;
    Ok(())
}
