//! Every reader of recordings and traces gives a recording that agrees with itself, or an error of one line.
//! What it gives can be written, and comes back from that; it can be written for Perfetto.

use tandem_recording::{Recording, import};

/// Events of recordings that are written again: a few bytes can be a million equal ones.
const EVENTS_MAX: usize = 1 << 12;

/// Reads an input, and checks what comes of it.
pub fn read(input: &[u8]) {
    match import::from_bytes(input) {
        Ok(recording) => {
            assert_eq!(recording.check(), Ok(()));
            if recording.events.len() <= EVENTS_MAX {
                let mut file = Vec::new();
                recording.write(&mut file).expect("what was read can be written");
                assert!(Recording::from_bytes(&file).expect("what was written can be read") == recording);
                recording.write_perfetto(std::io::sink()).expect("nothing can fail here");
            }
        }
        Err(error) => assert!(!tandem_file::shown::readable(&error.to_string(), &[]).contains('\n')),
    }
}
