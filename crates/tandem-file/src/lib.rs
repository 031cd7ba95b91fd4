//! What files have in common, whatever they describe: quantities with units, mistakes that are told with the line where
//! they stand, and that a new file appears when it is complete.

pub mod file_error;
pub mod located;
pub mod new_file;
pub mod units;
