//! The host's Linux as the reference: the same calls with the same arguments, many of them wrong, in a child process of the host and hosted.
//! The results, and the lines of maps afterwards, must be the same.

mod calls;
mod compare;
mod host;
mod hosted;
mod pair;
mod procmap;
mod scene;
mod stories;
