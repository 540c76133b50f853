/** One result of several responses: each of them groups a part of the dead jobs. */

import type { ErrorGroup, ErrorGroups } from "./calls.js";
import type { WireErrorGroups } from "./wire.js";

/** Returns the groups of all pages, the largest first. */
export function groupsFromWire(pages: readonly WireErrorGroups[]): ErrorGroups {
  const groups = new Map<string | undefined, ErrorGroup>();
  let [other, scanned] = [0, 0];
  for (const page of pages) {
    other += page.other;
    scanned += page.scanned;
    for (const group of page.groups.map(groupFromWire)) {
      const known = groups.get(group.errorGroup);
      groups.set(group.errorGroup, known === undefined ? group : sum(known, group));
    }
  }
  const text = ({ errorGroup }: ErrorGroup) => errorGroup ?? "";
  const order = (a: ErrorGroup, b: ErrorGroup) => b.count - a.count || (text(a) < text(b) ? -1 : 1);
  return { groups: [...groups.values()].sort(order), other, scanned };
}

function groupFromWire(wire: WireErrorGroups["groups"][number]): ErrorGroup {
  return {
    errorGroup: wire.error_group ?? undefined,
    count: wire.count,
    example: { id: wire.example.id, error: wire.example.error ?? undefined },
    firstDiedAt: new Date(wire.first_died_at),
    lastDiedAt: new Date(wire.last_died_at),
  };
}

function sum(a: ErrorGroup, b: ErrorGroup): ErrorGroup {
  const newest = a.lastDiedAt >= b.lastDiedAt ? a : b;
  return {
    ...newest,
    count: a.count + b.count,
    firstDiedAt: a.firstDiedAt <= b.firstDiedAt ? a.firstDiedAt : b.firstDiedAt,
  };
}
