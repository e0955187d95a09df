/** The event stream that the upstream sends and the clients expect. */

/** Milliseconds between two events. */
export const EVENT_INTERVAL = 100;

export function eventOf(count: number): string {
  return `id: ${count}\ndata: ${"x".repeat(100)}\n\n`;
}

export function eventsUpTo(count: number): string {
  return Array.from({ length: count }, (_, index) => eventOf(index)).join("");
}
