/**
 * A map that keeps the keys that were used last. It has two generations: when the younger one is full, it becomes the older
 * one, whose keys are dropped unless they have been used since. A lookup among recent keys is one lookup in a `Map`, and
 * allocates nothing; a `Map` whose keys move to its end with each use would be rebuilt again and again.
 */
export class RecentMap<Key, Value extends {}> {
  readonly #least: number;
  #younger: Map<Key, Value> = new Map();
  #older: Map<Key, Value> = new Map();

  /** @param least the number of keys that are kept at least; there are at most twice as many */
  constructor(least: number) {
    this.#least = least;
  }

  get(key: Key): Value | undefined {
    const value = this.#younger.get(key);
    if (value !== undefined) return value;
    const old = this.#older.get(key);
    if (old !== undefined) this.set(key, old);
    return old;
  }

  set(key: Key, value: Value): void {
    if (this.#younger.size >= this.#least) {
      this.#older = this.#younger;
      this.#younger = new Map();
    }
    this.#younger.set(key, value);
  }
}
