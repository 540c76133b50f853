/** One result of several responses: each of them groups a part of the dead jobs. */

import type { ErrorGroup, ErrorGroups } from "./models.js";

/** Returns the groups of all pages, the largest first. */
export function merged(pages: readonly ErrorGroups[]): ErrorGroups {
  const groups = new Map<string | undefined, ErrorGroup>();
  let [other, scanned] = [0, 0];
  for (const page of pages) {
    other += page.other;
    scanned += page.scanned;
    for (const group of page.groups) {
      const known = groups.get(group.errorGroup);
      groups.set(group.errorGroup, known === undefined ? group : sum(known, group));
    }
  }
  const text = ({ errorGroup }: ErrorGroup) => errorGroup ?? "";
  const order = (a: ErrorGroup, b: ErrorGroup) => b.count - a.count || (text(a) < text(b) ? -1 : 1);
  return { groups: [...groups.values()].sort(order), other, scanned };
}

function sum(a: ErrorGroup, b: ErrorGroup): ErrorGroup {
  const newest = a.lastDiedAt >= b.lastDiedAt ? a : b;
  return {
    ...newest,
    count: a.count + b.count,
    firstDiedAt: a.firstDiedAt <= b.firstDiedAt ? a.firstDiedAt : b.firstDiedAt,
  };
}
