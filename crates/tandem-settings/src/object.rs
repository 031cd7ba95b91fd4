//! The data sections and requests of the scheduler's object.

use super::preference::request_about;
use super::{Places, Preference, Settings, Subject};
use tandem_bpf::types;

pub use tandem_bpf::OBJECT;

/// Writes settings and topology into the scheduler's read-only data.
pub fn write(settings: &Settings, places: &Places, to: &mut types::rodata) {
    places.write(to);
    settings.write(&mut to.settings);
}

/// The scheduler's read-only data for these settings and places: `initial` is the object's section `.rodata`.
pub fn rodata(initial: &[u8], settings: &Settings, places: &Places) -> Vec<u8> {
    tandem_bpf::changed_rodata(initial, |rodata| write(settings, places, rodata))
}

/// The bytes of the request that sets a preference. Leaves out CPUs and nodes that the scheduler's tables
/// have no room for.
pub fn request_bytes(subject: Subject, preference: &Preference) -> Vec<u8> {
    let mut request = request_about(subject);
    // The only errors are numbers beyond the tables, and `Places` refuses machines that large.
    let _ = preference.write(&mut request);
    tandem_bpf::request_bytes(&request)
}
