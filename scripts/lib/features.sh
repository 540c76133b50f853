# The features that scripts/test builds: all but those of the two crates whose default the shipped binary has. They are for
# message brokers and OpenTelemetry, bring a third of all dependencies, and `scripts/test optional` tests them. To be sourced; sets
# the array `features`, arguments of cargo.

features=(--features "$(cargo metadata --locked --no-deps --format-version 1 | jq -r '
    .workspace_default_members as $members
    | [.packages[] | select(.id as $id | $members | index($id)) | select(.name | IN("requeue-bridge", "requeue-cli") | not)
        | .name as $package | .features | keys[] | "\($package)/\(.)"]
    | join(",")')")
