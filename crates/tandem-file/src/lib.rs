//! What all file formats share: quantities with units, errors with their line, limits on size, escaping of
//! untrusted text, messages of Protocol Buffers, and new files that appear under their name only when they are
//! complete.

pub mod file_error;
pub mod located;
pub mod named_file;
pub mod new_file;
pub mod protobuf;
mod shape;
pub mod shown;
pub mod units;
