//! The guide: how the manager works, in pictures, and how to embed it. The code in it is compiled and run by `cargo test --doc`.
//!
//! | page | for |
//! | --- | --- |
//! | [`model`] | everybody: the one idea, and what follows from it |
//! | [`provide`] | embedders: what you must provide, and when it is called |
//! | [`kernel`] | who writes a kernel |
//! | [`emulator`] | who writes an emulator, a sandbox, or a fuzzer |
//! | [`guarantees`] | what is guaranteed, and what is not |

#[doc = include_str!("../guide/model.md")]
pub mod model {}

#[doc = include_str!("../guide/provide.md")]
pub mod provide {}

#[doc = include_str!("../guide/kernel.md")]
pub mod kernel {}

#[doc = include_str!("../guide/emulator.md")]
pub mod emulator {}

#[doc = include_str!("../guide/guarantees.md")]
pub mod guarantees {}
