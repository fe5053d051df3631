//! todo
use crate::args;
use anyhow::Result;
pub fn bench(_b: &args::Bench) -> Result<u8> {
    Ok(0)
}
pub fn demo(_b: &args::Demo) -> Result<u8> {
    Ok(0)
}
