//! RocketMQ's Rust client of gRPC, as crates.io has it, against a proxy or a broker.
//!
//! Arguments: ENDPOINTS SCENARIO...; topics and groups have the names `rust-SCENARIO` and must
//! exist. Prints a line of JSON for each check, as support/suites.py reads them. The client has
//! only simple consumers, which can neither change invisible times nor recall messages.

mod report;
mod scenarios;

use report::Report;
use scenarios::Bench;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let endpoints = arguments.next().expect("ENDPOINTS SCENARIO...");
    let running: Vec<_> = arguments
        .map(|name| tokio::spawn(run(endpoints.clone(), name)))
        .collect();
    for one in running {
        one.await.expect("a scenario's failure is reported by itself");
    }
}

async fn run(endpoints: String, name: String) {
    let report = Report::new(&name);
    let within = report.clone();
    let bench = Bench::new(endpoints, format!("rust-{name}"));
    let done = tokio::spawn(async move { scenarios::play(&name, &bench, &within).await });
    match done.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => report.check("it did not fail", false, format!("{error:?}")),
        Err(error) => report.check("it did not fail", false, error.to_string()),
    }
    report.done();
}
