//! See `properties::promql`.
#![no_main]

#[path = "../properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(
    // Panics that are caught, as those of the PromQL parser are, neither end the fuzzer nor fill its log.
    init: std::panic::set_hook(Box::new(|_| {})),
    |data: &[u8]| properties::promql(data)
);
