import { limitBody, toStream } from "./body.ts";
import type { Lifetime } from "./deadline.ts";
import { toProxyError } from "./error.ts";
import { MisuseError } from "./misuse.ts";
import type { Plan } from "./plan.ts";
import { nextHop } from "./redirect.ts";
import { KeptBody } from "./replay.ts";
import { discardBody } from "./reply.ts";
import { hopAgain, neverAnswered } from "./retry.ts";
import type { Hop, Reply } from "./transport.ts";
import type { UnframedBody } from "./unframed.ts";

/** What changes while a request is on its way. */
export interface Trip {
  /** Of the hop that is being sent. */
  lifetime: Lifetime;
  /** Names of the fields that only the first origin may see. */
  secrets: readonly string[];
  /** The hop that redirects led to, if any. */
  followed?: Hop;
}

/** Measures an unframed body: the hop that is sent has no body, bytes, or a stream. */
export async function measureBody(hop: Hop, body: UnframedBody, { lifetime }: Trip): Promise<Hop> {
  try {
    return { ...hop, body: await lifetime.orAbort(body.measure()) };
  } catch (thrown) {
    body.cancel();
    throw thrown;
  }
}

/** Holds the request's body to its limit, and keeps it where it may have to be sent again. */
export function wrapBody(hop: Hop, plan: Plan, trip: Trip): Hop {
  const { bodyLimit } = plan.options;
  const { contentLength } = hop;
  let { body } = hop;
  if (body !== null && bodyLimit !== undefined) {
    body = limitBody(body, bodyLimit, contentLength, (error) => trip.lifetime.abort(error));
  }
  const keeps = plan.maxRedirects > 0 || plan.keepsFor.includes(hop.method);
  if (keeps && body !== null && !(body instanceof Uint8Array)) {
    const stream = toStream(body);
    // As a stream alone it is not kept, even where the runtime would have it as bytes.
    const long = (contentLength ?? 0) > plan.replayLimit;
    body = long ? stream : new KeptBody(stream, plan.replayLimit, contentLength);
  }
  return { ...hop, body };
}

/**
 * Sends a hop, once more where that is safe, and on to where redirects lead.
 *
 *     hop → send → reply
 *      ↑ nextHop(hop, reply) | hopAgain(hop) ↓
 */
export function deliver(hop: Hop, plan: Plan, trip: Trip): Promise<Reply> {
  const transport = hop.upstream.app === undefined ? plan.transport : plan.inProcess;
  const sent = transport.send(hop, trip.lifetime);
  // Most replies are the last, whatever they are: for those the loop would only be promises more.
  const isLast = plan.maxRedirects === 0 && plan.retry.statusCodes.length === 0;
  return isLast
    ? sent.catch(() => deliverFrom(hop, sent, plan, trip))
    : deliverFrom(hop, sent, plan, trip);
}

async function deliverFrom(
  first: Hop,
  firstSent: Promise<Reply>,
  plan: Plan,
  trip: Trip,
): Promise<Reply> {
  const { retry } = plan;
  let hop = first;
  let sent = firstSent;
  let attempts = retry.attempts;
  /** What was sent so far, where redirects are followed. */
  const visited = plan.maxRedirects > 0 ? [nameOf(hop)] : undefined;
  for (;;) {
    let again: Hop | undefined;
    let next: Hop | undefined;
    let reply: Reply | undefined;
    try {
      reply = await sent;
    } catch (thrown) {
      if (attempts > 0 && neverAnswered(thrown)) again = hopAgain(hop, retry.methods);
      if (again === undefined || trip.lifetime.error !== undefined) throw toDeliveryError(thrown);
      // Any kept connection may be as stale as this one.
      again = { ...again, fresh: true };
    }
    if (reply !== undefined) {
      if (attempts > 0 && retry.statusCodes.includes(reply.status)) {
        again = hopAgain(hop, retry.methods);
      }
      if (visited !== undefined && visited.length <= plan.maxRedirects) {
        next = askForNext(hop, reply, plan, trip);
        // The same once more would have the same answer.
        if (next !== undefined && visited.includes(nameOf(next))) next = undefined;
      }
      if (again === undefined && next === undefined) return reply;
      discardBody(reply);
    }
    trip.lifetime = trip.lifetime.again();
    if (again !== undefined) {
      attempts--;
      hop = again;
      if (retry.delay > 0) await pause(retry.delay, trip.lifetime);
    } else if (next !== undefined) {
      attempts = retry.attempts;
      trip.followed = hop = next;
      visited?.push(nameOf(hop));
    }
    if (trip.lifetime.error !== undefined) throw trip.lifetime.error;
    // A redirect may lead from an app to the network.
    const transport = hop.upstream.app === undefined ? plan.transport : plan.inProcess;
    sent = transport.send(hop, trip.lifetime);
  }
}

/**
 * An error of a transport. A transport of the app's own may reject with anything: all but misuse is
 * about the network, and becomes a response.
 */
function toDeliveryError(thrown: unknown): unknown {
  return thrown instanceof MisuseError ? thrown : toProxyError(thrown);
}

/** The hop that a redirect leads to. Where the policy throws, nothing else reads the redirect's body. */
function askForNext(hop: Hop, reply: Reply, plan: Plan, { secrets }: Trip): Hop | undefined {
  try {
    return nextHop(hop, reply, plan.mayFollow, secrets);
  } catch (thrown) {
    discardBody(reply);
    throw thrown;
  }
}

function pause(delay: number, lifetime: Lifetime): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, delay);
  });
  return lifetime.orAbort(over).finally(() => clearTimeout(timer));
}

function nameOf({ method, upstream, path }: Hop): string {
  return `${method} ${upstream.origin}${path}`;
}
