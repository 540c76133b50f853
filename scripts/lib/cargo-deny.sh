# Makes `cargo deny --offline` work: installs it into the build directory if it is missing. To be sourced.
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
if ! command -v cargo-deny >/dev/null && [ ! -x "$tools/bin/cargo-deny" ]; then
    # Unoptimised and without debug information: it builds in a third of the time and runs for a second.
    CARGO_PROFILE_DEV_DEBUG=0 cargo install -q cargo-deny --version 0.20.2 --locked --debug --root "$tools"
fi
PATH=$PATH:$tools/bin
# It reads the dependencies of all platforms, which no build needs.
cargo fetch -q --locked
