import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.DelayQueue;
import java.util.concurrent.Delayed;
import java.util.concurrent.TimeUnit;

/**
 * The Java side of the benchmarks, {@link DelayQueue}: one measurement per run.
 *
 * <pre>java DelayBench WORKLOAD SECONDS</pre>
 *
 * prints {"value":…,"unit":"ns"}. Workloads have the names and the work of their Rust
 * counterparts in ../src/workloads.
 */
public final class DelayBench {
    private static final int TIMERS = 1_000_000;
    private static final long SECOND = 1_000_000_000L;
    private static final long MILLISECOND = 1_000_000L;
    /** Passes before the measured ones, so that they run compiled code. */
    private static final int WARM_UP_PASSES = 5;

    /** Keys with delays, the same as those of the other systems. */
    private record Timers(String[] keys, long[] delays) {
        static Timers of(int n) {
            return new Timers(makeKeys(n), makeDelays(n, 60 * SECOND, 3600 * SECOND));
        }

        int size() {
            return keys.length;
        }

        Timers first(int n) {
            return new Timers(Arrays.copyOf(keys, n), Arrays.copyOf(delays, n));
        }
    }

    private static final class Entry implements Delayed {
        /** Null if there is a newer entry for the key: this one is skipped when it is taken. */
        String key;
        final long due;

        Entry(String key, long due) {
            this.key = key;
            this.due = due;
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return unit.convert(due - System.nanoTime(), TimeUnit.NANOSECONDS);
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(due - ((Entry) other).due, 0);
        }
    }

    /** A pass of the workload, which returns the nanoseconds of the measured part. */
    private interface Pass {
        long run(Timers timers);
    }

    public static void main(String[] args) throws InterruptedException {
        if (args.length != 2) {
            throw new IllegalArgumentException("usage: DelayBench WORKLOAD SECONDS");
        }
        long budget = (long) (Double.parseDouble(args[1]) * SECOND);
        switch (args[0]) {
            case "add-after-1m" -> print(passes(DelayBench::addAfter, budget), "ns");
            case "reschedule-1m" -> print(passes(DelayBench::reschedule, budget), "ns");
            case "timer-bytes" -> print(timerBytes(), "bytes");
            case "lateness" -> print(lateness(budget), "ns");
            default -> throw new IllegalArgumentException("unknown workload " + args[0]);
        }
    }

    private static void print(double value, String unit) {
        System.out.println(String.format(Locale.ROOT, "{\"value\":%.3f,\"unit\":\"%s\"}", value, unit));
    }

    private static double passes(Pass pass, long budget) {
        Timers timers = Timers.of(TIMERS);
        Timers some = timers.first(TIMERS / 10);
        for (int i = 0; i < WARM_UP_PASSES; i++) {
            pass.run(some);
        }
        long elapsed = 0;
        long ops = 0;
        while (ops == 0 || elapsed < budget) {
            System.gc(); // what the last pass left behind is not this one's
            elapsed += pass.run(timers);
            ops += timers.size();
        }
        return (double) elapsed / ops;
    }

    private static Entry[] addAll(DelayQueue<Entry> queue, Timers timers) {
        Entry[] entries = new Entry[timers.size()];
        for (int i = 0; i < entries.length; i++) {
            entries[i] = new Entry(timers.keys[i], System.nanoTime() + timers.delays[i]);
            queue.put(entries[i]);
        }
        return entries;
    }

    private static long addAfter(Timers timers) {
        DelayQueue<Entry> queue = new DelayQueue<>();
        long started = System.nanoTime();
        addAll(queue, timers);
        return System.nanoTime() - started;
    }

    /** Removing from a DelayQueue takes time linear in its size, so the old entry stays, empty. */
    private static long reschedule(Timers timers) {
        DelayQueue<Entry> queue = new DelayQueue<>();
        Entry[] entries = addAll(queue, timers);
        long started = System.nanoTime();
        for (int i = 0; i < entries.length; i++) {
            entries[i].key = null;
            entries[i] = new Entry(timers.keys[i], System.nanoTime() + timers.delays[i] / 10 * 9);
            queue.put(entries[i]);
        }
        return System.nanoTime() - started;
    }

    private static double timerBytes() {
        Timers timers = Timers.of(TIMERS);
        long before = liveBytes();
        DelayQueue<Entry> queue = new DelayQueue<>();
        addAll(queue, timers);
        long after = liveBytes();
        if (queue.size() != timers.size()) {
            throw new IllegalStateException("timers are missing");
        }
        return (double) (after - before) / timers.size();
    }

    private static long liveBytes() {
        System.gc();
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    private static double lateness(long budget) throws InterruptedException {
        medianLateness(100 * MILLISECOND); // warm-up
        return medianLateness(budget);
    }

    private static double medianLateness(long over) throws InterruptedException {
        int n = (int) Math.max(over / (MILLISECOND / 2), 1);
        String[] keys = makeKeys(n);
        long[] delays = makeDelays(n, 50 * MILLISECOND, over);
        DelayQueue<Entry> queue = new DelayQueue<>();
        long[] late = new long[n];
        Thread getter = new Thread(() -> {
            try {
                for (int i = 0; i < n; i++) {
                    Entry entry = queue.take();
                    late[i] = System.nanoTime() - entry.due;
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        getter.start();
        for (int i = 0; i < n; i++) {
            queue.put(new Entry(keys[i], System.nanoTime() + delays[i]));
        }
        getter.join();
        Arrays.sort(late);
        return late[n / 2];
    }

    /** splitmix64: the same numbers in Go, Rust and Java, with three lines each. */
    private static final class Numbers {
        private long state;

        Numbers(long seed) {
            state = seed;
        }

        long below(long bound) {
            state += 0x9E3779B97F4A7C15L;
            long z = state;
            z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
            z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
            return Long.remainderUnsigned(z ^ (z >>> 31), bound);
        }
    }

    /** The keys of all systems, in a different order from their order in memory. */
    private static String[] makeKeys(int n) {
        Numbers numbers = new Numbers(42);
        String[] keys = new String[n];
        for (int i = 0; i < n; i++) {
            String hex = Long.toHexString(numbers.below(1 << 24) | 1 << 24).substring(1);
            String count = i < 1000 ? Integer.toString(10_000 + i).substring(1) : Integer.toString(i);
            keys[i] = "namespace-" + i % 97 + "/pod-" + hex + "-" + count;
        }
        for (int i = n - 1; i > 0; i--) {
            int j = (int) numbers.below(i + 1);
            String key = keys[i];
            keys[i] = keys[j];
            keys[j] = key;
        }
        return keys;
    }

    /** Delays in [from, from + spread). */
    private static long[] makeDelays(int n, long from, long spread) {
        Numbers numbers = new Numbers(7);
        long[] delays = new long[n];
        for (int i = 0; i < n; i++) {
            delays[i] = from + numbers.below(spread);
        }
        return delays;
    }
}
