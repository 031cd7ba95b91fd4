//! What files have in common, whatever they describe: quantities with units, mistakes that are told with the line where
//! they stand, that no more is read than belongs there, that texts of strangers are escaped where they are shown, and that a new file
//! appears when it is complete.

pub mod file_error;
pub mod located;
pub mod named_file;
pub mod new_file;
pub mod shown;
pub mod units;
