//! The HTTP API over real sockets: what each endpoint does, and what it rejects.

pub(crate) mod access;
mod bad_input;
mod bad_requests;
mod bodies;
mod claims;
mod counts;
mod dashboard;
mod jobs;
mod kinds;
mod large_responses;
mod lists;
mod monitoring;
mod mutations;
mod push;
mod samples;
mod schedules;
mod service;
mod sessions;
mod settle;
mod support;
mod transfer;
