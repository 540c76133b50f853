create table if not exists stock (
  item text primary key,
  quantity int not null constraint enough_in_stock check (quantity >= 0)
);

create table if not exists orders (
  id bigint generated always as identity primary key,
  item text not null references stock,
  state text not null default 'unpaid' check (state in ('unpaid', 'paid', 'closed')),
  reminded_at timestamptz
);

insert into stock values ('book', 100), ('last copy', 1) on conflict do nothing;
