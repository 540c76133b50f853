//! `requeue bridge` and `requeue serve` between RabbitMQ and its clients, as real processes that are killed.
//! `eval "$(scripts/brokers)"` installs what they need.

mod client;
mod command;
mod kills;
mod plugin;
mod process;
