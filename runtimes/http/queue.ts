/** Those who wait, in the order they came. Anyone can leave at once, wherever they stand. */
export class Queue<T> {
  size = 0;
  #first: Place<T> | undefined;
  #last: Place<T> | undefined;

  /** Lines up behind all others. Returns how to leave; that does nothing for who has left already. */
  push(item: T): () => void {
    const place: Place<T> = { item, before: this.#last, after: undefined, left: false };
    if (this.#last === undefined) this.#first = place;
    else this.#last.after = place;
    this.#last = place;
    this.size++;
    return () => this.#leave(place);
  }

  /** The one who has waited longest. */
  get first(): T | undefined {
    return this.#first?.item;
  }

  /** The one who has waited longest leaves. */
  shift(): T | undefined {
    const first = this.#first;
    if (first !== undefined) this.#leave(first);
    return first?.item;
  }

  #leave(place: Place<T>): void {
    if (place.left) return;
    const { before, after } = place;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    place.left = true;
    this.size--;
  }
}

interface Place<T> {
  readonly item: T;
  before: Place<T> | undefined;
  after: Place<T> | undefined;
  left: boolean;
}
