//! What the files that people write have in common, whatever they describe: quantities with units, and mistakes that
//! are told with the line where they stand.

pub mod file_error;
pub mod located;
pub mod units;
