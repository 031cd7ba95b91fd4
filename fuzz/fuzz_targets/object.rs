#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| reader_tests::object::read(input));
