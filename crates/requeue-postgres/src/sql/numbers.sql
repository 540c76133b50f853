-- The time, and numbers that rise: also after a failover to a server that lacks the latest transactions.

-- The time in milliseconds: the server's, or that of a test.
create function requeue._now(of_test bigint) returns bigint language sql
return coalesce(of_test, floor(extract(epoch from clock_timestamp()) * 1000)::bigint);

-- A number that is another one after each start of the server and, since Postgres 15, after the crash of one of its processes:
-- that resets the statistics. With `synchronous_commit=off`, it loses the latest transactions, too. Earlier versions would have to
-- wait for the statistics.
create function requeue._start() returns bigint language sql stable
return (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
  + case when current_setting('server_version_num')::int >= 150000
    then coalesce((extract(epoch from pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint, 0) else 0 end;

-- Numbers rise even after a failover to a server that lacks the latest transactions, because they are raised to the clock
-- once per server start. This waits only for another session that does the same.
--
-- A session remembers that it was done, because it does not outlive a start of the server. A role that may only put with SQL could
-- set that itself: the functions for it look each time.
create function requeue._raise_numbers() returns void language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  started bigint := requeue._start();
  clock bigint;
begin
  if (select last_value from requeue.raised_at) <> started then
    -- The lock ends with this block, because it is rolled back: the transaction may be long. Changes of sequences stay.
    begin
      perform from requeue.raising for update;
      if (select last_value from requeue.raised_at) <> started then
        -- A second ahead: other sessions may be taking numbers at this moment.
        clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint + 1000000;
        if (select last_value from requeue.number) < clock then
          perform setval('requeue.number', clock);
        else
          perform setval('requeue.number', (select last_value from requeue.number) + 1000000);
        end if;
        -- Seconds since 2020: fewer kinds than that are created.
        perform setval('requeue.kind_number', greatest((select last_value from requeue.kind_number) + 1000, clock / 1000000 - 1577836800));
        perform nextval('requeue.raises');
        perform setval('requeue.raised_at', started);
      end if;
      raise exception using errcode = 'RQ001', message = 'done';
    exception when sqlstate 'RQ001' then null;
    end;
  end if;
  perform set_config('SCHEMA.raised', 'y', false);
end $$;

-- For the first time, so that it is not lost.
select requeue._raise_numbers();

-- Whether numbers were raised since the server has started.
create function requeue._is_raised() returns boolean language sql
return (select last_value from requeue.raised_at) = requeue._start();
