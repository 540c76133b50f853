/** Signals of the process. Where there are none, as in a browser, nothing happens. */

const SIGNALS = { SIGINT: 2, SIGTERM: 15 } as const;

/**
 * Calls `shutdown` on the first and on the second SIGTERM or SIGINT. The third ends the process. Returns a function
 * that stops listening.
 */
export function onSignals(shutdown: () => void): () => void {
  if (typeof process === "undefined" || typeof process.on !== "function") return () => {};
  let received = 0;
  const listener = (signal: NodeJS.Signals) => {
    received += 1;
    // The exit code of a program that a signal ended, as shells report it.
    if (received > 2) process.exit(128 + SIGNALS[signal as keyof typeof SIGNALS]);
    shutdown();
  };
  for (const signal of Object.keys(SIGNALS)) process.on(signal, listener);
  return () => {
    for (const signal of Object.keys(SIGNALS)) process.off(signal, listener);
  };
}
