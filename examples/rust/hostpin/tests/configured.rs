//! What is configured from code, in a process of its own, since it is possible once. HOSTPIN_LOG and other variables
//! of the environment would overrule it.

use std::sync::Mutex;

use hostpin::{Backend, Config, ErrorKind, Level, Pinned};

static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

fn refusal(config: Config) -> String {
    let error = hostpin::configure(&config).expect_err("out of range");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn the_configuration_comes_first() {
    assert!(refusal(Config { backend: Some(Backend::Other), ..Default::default() }).contains("backend is -1"));
    assert!(refusal(Config { max_segment: 1, ..Default::default() }).contains("max_segment is 1 "));
    assert!(refusal(Config { budget_percent: 101, ..Default::default() }).contains("budget_percent is 101"));
    assert!(refusal(Config { prefault_threads: 65, ..Default::default() }).contains("prefault_threads is 65"));

    hostpin::set_logger(|level, line| LINES.lock().unwrap().push((level, line.into())));
    let config =
        Config { log_level: Some(Level::Info), max_segment: 64 << 10, budget_bytes: 256 << 10, ..Default::default() };
    hostpin::configure(&config).unwrap();
    let backend = hostpin::backend().unwrap();
    let fits = Pinned::new(vec![0; 128 << 10]).unwrap();
    let too_large = Pinned::new(vec![0; 512 << 10]);
    if backend.backend == Backend::None {
        assert!(!fits.is_pinned() && !too_large.unwrap().is_pinned());
    } else {
        assert_eq!(backend.max_segment, config.max_segment);
        assert!(fits.is_pinned() && hostpin::stats().segments >= 2);
        assert_eq!(too_large.unwrap_err().kind(), ErrorKind::Budget);
        let lines = LINES.lock().unwrap();
        assert!(lines.iter().any(|(level, line)| *level == Level::Info && line.contains(&*backend.runtime_file)));
    }
    assert!(refusal(config).contains("too late"));
}

#[test]
fn the_library_has_the_major_version_of_the_bindings() {
    let version = hostpin::version();
    assert!(version.starts_with(&format!("{}.", hostpin_sys::HP_VERSION_MAJOR)), "{version}");
}
