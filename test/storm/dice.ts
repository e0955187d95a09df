/** Random numbers that depend only on the seeds, so that they are the same on every machine. */
export class Dice {
  #a: number;
  #b: number;
  #c: number = 0x9e37_79b9;
  #counter: number = 1;

  constructor(seed: number, stream: number) {
    this.#a = seed | 0;
    this.#b = Math.imul(stream + 1, 0x85eb_ca6b) | 0;
    // Drop the first numbers, because they depend too regularly on the seeds.
    for (let round = 0; round < 12; round++) this.below(1);
  }

  /** Returns a whole number from 0 to `sides - 1`. The generator is sfc32. */
  below(sides: number): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return (sum >>> 0) % sides;
  }

  between(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }

  chance(percent: number): boolean {
    return this.below(1000) < percent * 10;
  }

  pick<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T;
  }
}
