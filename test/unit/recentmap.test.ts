/** The map that keeps the keys that were used last. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { RecentMap } from "../../src/recentmap.ts";

/** Looks a key up, and adds it if it is not there. Returns whether it was there. */
function use(map: RecentMap<number, string>, key: number): boolean {
  const isKnown = map.get(key) !== undefined;
  if (!isKnown) map.set(key, `value ${key}`);
  return isKnown;
}

test("as many keys as guaranteed, and one more, may be in use without an eviction", () => {
  const map = new RecentMap<number, string>(100);
  for (let key = 0; key < 101; key++) use(map, key);
  for (let round = 0; round < 3; round++) {
    for (let key = 0; key < 101; key++) expect(use(map, key)).toBe(true);
  }
});

test("a key that is used again and again stays, however many other keys come", () => {
  const map = new RecentMap<number, string>(10);
  use(map, -1);
  for (let key = 0; key < 1_000; key++) {
    use(map, key);
    expect(use(map, -1)).toBe(true);
  }
});

test("a key is dropped after twice the guaranteed number of other keys at the latest", () => {
  const map = new RecentMap<number, string>(10);
  for (let key = 0; key <= 20; key++) use(map, key);
  expect(map.get(0)).toBeUndefined();
});

test("a key that is set again has the new value", () => {
  const map = new RecentMap<number, string>(2);
  for (const key of [1, 2, 3]) use(map, key);
  map.set(1, "new");
  for (const key of [4, 5]) use(map, key);
  expect(map.get(1)).toBe("new");
});

test("the keys that were used last are kept, at least the guaranteed number of them", () => {
  const keys = fc.array(fc.integer({ min: 0, max: 30 }), { maxLength: 300 });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 12 }), keys, (least, used) => {
      const map = new RecentMap<number, string>(least);
      const recent: number[] = [];
      for (const key of used) {
        expect(use(map, key) || !recent.slice(0, least).includes(key)).toBe(true);
        if (recent.includes(key)) recent.splice(recent.indexOf(key), 1);
        recent.unshift(key);
      }
    }),
  );
});
