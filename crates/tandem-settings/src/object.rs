//! The scheduler's object, and its data.

use super::preference::request_about;
use super::{Places, Preference, Settings, Subject};
use tandem_bpf::types;

pub use tandem_bpf::OBJECT;

/// Fills the scheduler's settings and tables of the topology.
pub fn write(settings: &Settings, places: &Places, to: &mut types::rodata) {
    places.write(to);
    settings.write(&mut to.settings);
}

/// The scheduler's read-only data for these settings and places: `initial` is the object's section `.rodata`.
pub fn rodata(initial: &[u8], settings: &Settings, places: &Places) -> Vec<u8> {
    tandem_bpf::changed_rodata(initial, |rodata| write(settings, places, rodata))
}

/// The bytes of the request that sets somebody's preference. What is beyond the scheduler's tables is left out.
pub fn request_bytes(subject: Subject, preference: &Preference) -> Vec<u8> {
    let mut request = request_about(subject);
    // Only numbers beyond the tables are errors, and machines that large are refused before.
    let _ = preference.write(&mut request);
    tandem_bpf::request_bytes(&request)
}
