/**
 * A map that keeps the most recently used keys. It has two generations: when the younger generation is full, it becomes
 * the older one, and the generation that was older until then is dropped. A key that is found in the older generation is added
 * to the younger one. Reading a recent key costs one lookup in a `Map`, and allocates nothing. If each used key were moved to
 * the end of a single `Map`, that `Map` would often be rebuilt.
 */
export class RecentMap<Key, Value extends {}> {
  readonly #capacity: number;
  #younger: Map<Key, Value> = new Map();
  #older: Map<Key, Value> = new Map();

  /** @param capacity the number of keys in one generation: the map has at most twice as many keys */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get(key: Key): Value | undefined {
    const value = this.#younger.get(key);
    if (value !== undefined) return value;
    const old = this.#older.get(key);
    if (old !== undefined) this.set(key, old);
    return old;
  }

  set(key: Key, value: Value): void {
    if (this.#younger.size >= this.#capacity) {
      this.#older = this.#younger;
      this.#younger = new Map();
    }
    this.#younger.set(key, value);
  }
}
