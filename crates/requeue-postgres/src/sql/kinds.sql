-- Kinds: they are created by the first put, locked by what is done one at a time, and removed if there are too many.

-- Returns the number of a kind, and creates the kind if there is none. Null: there are too many kinds.
create function requeue._kind_id(kind text) returns int language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
  found_id int;
  made_id int;
  n bigint;
  generations bigint;
  fences bigint;
begin
  loop
    select k.kind_id into found_id from requeue.kind k where k.name = kind for key share;
    if found then return found_id; end if;
    -- Numbers have gaps, so they only tell when to count.
    if (select max(k.kind_id) - min(k.kind_id) from requeue.kind k) >= 9999 and (select count(*) from requeue.kind) >= 10000 then return null; end if;
    perform requeue._raise_numbers();
    n := nextval('requeue.number');
    insert into requeue.kind (kind_id, name, generation_offset)
    select nextval('requeue.kind_number'), kind, -case when r.last_value = 1 then n else c.first_number end
    from requeue.raises r, requeue.cluster c
    on conflict do nothing returning kind.kind_id into made_id;
    if made_id is not null then
      -- Read now: whoever has removed a kind of this name has done so before the insert.
      select g.last_value, f.last_value into generations, fences from requeue.generation_floor g, requeue.fence_floor f;
      if generations > 0 or fences > 0 then
        update requeue.kind k set generation_offset = greatest(k.generation_offset, generations - n), fence_offset = greatest(k.fence_offset, fences - n)
        where k.kind_id = made_id;
      end if;
      -- With the number of the kind: the next one is that of its first put, whose generation is 1.
      insert into requeue.total (kind_id, number, upto, pending, leased, dead, done, generation, fence)
      values (made_id, n, '0'::xid8, 0, 0, 0, 0, 0, 0);
      return made_id;
    end if;
    -- Another transaction has created it. A snapshot that does not show that stays the same.
    if current_setting('transaction_isolation') <> 'read committed' then
      raise exception using message = 'put: another transaction has created the kind', errcode = 'serialization_failure';
    end if;
  end loop;
end $$;

-- Creates kinds for the store, which does not wait for long if an open transaction is creating one of them.
create function requeue._make_kinds(kinds text[]) returns table (kind text, kind_id int) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
begin
  -- In this order, so that no two calls wait for each other.
  for kind in select k from unnest(kinds) k order by k loop
    kind_id := requeue._kind_id(kind);
    return next;
  end loop;
end $$;

-- Locks a kind, for what is done one at a time, until the end of the transaction. Returns its settings. Transactions of
-- applications do not call this.
create function requeue._lock_kind(of_kind int) returns text language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare found_settings text;
begin
  select k.settings::text into strict found_settings from requeue.kind k where k.kind_id = of_kind for no key update;
  return found_settings;
end $$;

-- Raises the numbers of a kind to those that an import has brought.
create function requeue._raise_offsets(of_kind int, generation bigint, fence bigint) returns void language sql
begin atomic
  update requeue.kind k set
    generation_offset = greatest(k.generation_offset, generation - (select last_value from requeue.number)),
    fence_offset = greatest(k.fence_offset, fence - (select last_value from requeue.number)),
    is_near_limit = k.is_near_limit or greatest(generation, fence) > 9007199254740991 - 1099511627776
  where k.kind_id = of_kind;
end;

-- Returns up to `most` kinds after a kind that seem to have no jobs, settings and schedules, in order.
create function requeue._idle_kinds(after int, most int) returns setof int language sql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
  select k.kind_id from requeue.kind k
  cross join lateral (select count(*) as count from (select from requeue.job j where j.kind_id = k.kind_id limit 1) j offset 0) j
  cross join lateral (select count(*) as count from (select from requeue.schedule s where s.kind_id = k.kind_id limit 1) s offset 0) s
  where k.kind_id > after and k.settings is null and j.count = 0 and s.count = 0 order by k.kind_id limit most
$$;

-- Removes a kind that has no jobs, settings and schedules, and returns whether it has done so. Its numbers raise those of all kinds
-- that are created from now on.
create function requeue._forget(of_kind int) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare sums record;
begin
  -- No open transaction puts a job of it, then. Statements below see all jobs that were put.
  perform from requeue.kind k where k.kind_id = of_kind and k.settings is null for update skip locked;
  if not found then return false; end if;
  if exists (select from requeue.job j where j.kind_id = of_kind) or exists (select from requeue.schedule s where s.kind_id = of_kind) then
    return false;
  end if;
  -- One at a time.
  perform from requeue.raising for update skip locked;
  if not found then return false; end if;
  select * into sums from requeue._totals(of_kind);
  perform setval('requeue.generation_floor', greatest(g.last_value, sums.generation)) from requeue.generation_floor g;
  perform setval('requeue.fence_floor', greatest(f.last_value, sums.fence)) from requeue.fence_floor f;
  delete from requeue.delta d where d.kind_id = of_kind;
  delete from requeue.total t where t.kind_id = of_kind;
  delete from requeue.rate_use r where r.kind_id = of_kind;
  delete from requeue.kind k where k.kind_id = of_kind;
  return true;
end $$;
