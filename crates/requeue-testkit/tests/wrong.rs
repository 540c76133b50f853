//! The suite has teeth: no wrong store passes it.

use requeue_testkit::conformance::failures;
use requeue_testkit::wrong::FLAWS;

#[test]
fn every_wrong_store_fails_the_case_that_is_about_its_flaw() {
    for flaw in FLAWS {
        let failed = failures(|| flaw.fixture());
        println!("{} fails {} cases: {failed:?}", flaw.name, failed.len());
        assert!(failed.contains(&flaw.breaks), "{} passes {}", flaw.name, flaw.breaks);
    }
}
