//! Results of a scenario: a line of JSON for each check.

use std::fmt::Debug;
use std::time::Instant;

use serde_json::json;

#[derive(Clone)]
pub struct Report {
    scenario: String,
    began: Instant,
}

impl Report {
    pub fn new(scenario: &str) -> Self {
        Report { scenario: scenario.to_string(), began: Instant::now() }
    }

    pub fn check(&self, what: &str, ok: bool, detail: String) {
        let after_ms = self.began.elapsed().as_millis() as u64;
        println!(
            "{}",
            json!({"kind": "check", "scenario": self.scenario, "what": what, "ok": ok,
                   "after_ms": after_ms, "detail": detail})
        );
    }

    pub fn equal<T: PartialEq + Debug>(&self, what: &str, wanted: T, found: T) {
        self.check(what, wanted == found, format!("wanted {wanted:?}, found {found:?}"));
    }

    pub fn done(&self) {
        println!("{}", json!({"kind": "done", "scenario": self.scenario}));
    }
}
