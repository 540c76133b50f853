/** Lets one task wait for a condition that others change. */
export class Changes {
  #wake = () => {};

  /** Must be called after every change of what a condition reads. */
  notify(): void {
    this.#wake();
  }

  /** Waits until the condition holds, the signal is aborted, or the time is over. One call at a time. */
  async until(condition: () => boolean, signal?: AbortSignal, limitMs?: number): Promise<void> {
    if (condition()) return;
    let over = false;
    const wake = () => this.#wake();
    const stop = () => {
      over = true;
      wake();
    };
    const timer = limitMs === undefined ? undefined : setTimeout(stop, limitMs);
    signal?.addEventListener("abort", wake);
    while (!condition() && !over && !signal?.aborted) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
      // Changes that happen together are seen together.
      await nextTurn();
    }
    signal?.removeEventListener("abort", wake);
    clearTimeout(timer);
  }
}

/** Resolves when everything that can run now has run. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
