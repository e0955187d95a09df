/** The upstream of a storm: answers each request as its plan says. */
import type { Call } from "../helpers/link.ts";
import { pause } from "../helpers/wait.ts";
import { locate, waitFor, writeCut } from "./message.ts";
import type { Ending } from "./plan.ts";
import type { Record } from "./record.ts";

/** @param onIdleClose called before a connection that may be reused is closed */
export async function answer(record: Record, call: Call, onIdleClose: () => void): Promise<void> {
  const { plan } = record;
  const { socket } = call.link;
  if (!socket.writable) {
    record.stale = true;
    return;
  }
  if (plan.deaf > 0) {
    socket.pause();
    await pause(plan.deaf);
    socket.resume();
  }
  if (!plan.early) {
    await call.done;
    if (call.state !== "complete") return;
  }
  await waitFor(plan.delay);
  const { ending } = plan;
  if (ending.kind === "silent") return;
  const isRepeated = record.calls.length > 1;
  if (ending.kind === "whole") await answerWhole(record, call, ending.after, onIdleClose);
  else if (isRepeated && !ending.again) await answerWhole(record, call, "keep", onIdleClose);
  else await breakOff(record, call, ending);
}

async function answerWhole(
  record: Record,
  call: Call,
  after: (Ending & { kind: "whole" })["after"],
  onIdleClose: () => void,
): Promise<void> {
  const { plan, response } = record;
  const { link } = call;
  const endsByClose = plan.response.framing === "close" && plan.method !== "HEAD";
  await writeCut(link.socket, response, plan.response.cuts, response.bytes.length, () => {
    record.answered = true;
  });
  if (endsByClose || after === "close" || plan.upstreamVersion === "1.0") return call.close();
  if (after === "keep") return;
  if (after === "late fin") await pause(1 + (plan.id % 20));
  // Close only a connection that has no further request, as an upstream does after its idle timeout.
  if (link.calls.at(-1) !== call || link.isClosed) return;
  onIdleClose();
  call.close();
}

async function breakOff(
  record: Record,
  call: Call,
  { at, how, wait }: Ending & { kind: "cut" },
): Promise<void> {
  const { plan, response } = record;
  record.broken = true;
  await writeCut(call.link.socket, response, plan.response.cuts, locate(at, response));
  await waitFor(wait);
  if (how === "FIN") call.close();
  else call.reset();
}
