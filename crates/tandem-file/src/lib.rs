//! What all files have in common: quantities with units, errors with their line, bounds on what is read, escaping of
//! text that strangers wrote, and new files that appear under their name only when they are complete.

pub mod file_error;
pub mod located;
pub mod named_file;
pub mod new_file;
pub mod shown;
pub mod units;
