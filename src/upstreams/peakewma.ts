import { type Chance, type Member, pickCheaper, type Policy } from "./policy.ts";

/** Milliseconds in which a measured latency loses most of its influence. */
const DECAY = 10_000;
/** The assumed latency in milliseconds of an upstream that has not answered its first request yet. */
const UNKNOWN_LATENCY = 1_000;

/**
 * Picks the one of two random upstreams that has the lower cost: its average latency times its requests. A latency above
 * the average replaces the average immediately, so that a slow upstream is avoided after its first slow response; a latency
 * below it lowers the average gradually (Finagle's Peak EWMA).
 */
export function peakEwma(chance: Chance): Policy {
  const measured = new WeakMap<Member, { latency: number; at: number }>();

  function costOf(member: Member): number {
    const known = measured.get(member);
    // An upstream without a measured latency gets its first request soon, but hardly a second one before it has answered
    // the first.
    if (known === undefined) return member.active * UNKNOWN_LATENCY;
    const { latency, at } = known;
    // The average decays: an upstream that was avoided is tried again after a while, because its latency may have changed.
    const present = latency * Math.exp((at - chance.now()) / DECAY);
    return (present * (member.active + 1)) / member.weight;
  }

  return {
    pick: (able, _request, group) => pickCheaper(able, group, chance, costOf),
    observe(member, latency) {
      const now = chance.now();
      const before = measured.get(member);
      if (before === undefined || latency >= before.latency) {
        measured.set(member, { latency, at: now });
        return;
      }
      const kept = Math.exp((before.at - now) / DECAY);
      before.latency = before.latency * kept + latency * (1 - kept);
      before.at = now;
    },
  };
}
