/** Faulty upstreams: the response has the right status and RFC 9209 error type, and no connection stays in use. */
import { expect } from "vitest";
import { faults, type Fault } from "./_faults.ts";
import type { Tools } from "./_suite.ts";
import { until, within } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

async function expectFault(t: Tools, fault: Fault): Promise<void> {
  const { setup = "default", method = "GET", status, code, text = "", cut = false } = fault;
  const { upstream } = t;
  let scripted: Promise<void> | undefined;
  const client = await t.connect(setup);
  // Some servers may send nothing before the body ends, so this wait may time out.
  const arrived = (): Promise<void> =>
    until(() => client.socket.bytesRead > 0 || client.isClosed, "bytes", 2000).catch(() => {});
  upstream.script = (call) => (scripted = Promise.resolve(fault.script(call, arrived)));
  client.send(request(method, "/fault", [], fault.body));
  const answer = await client.read(method);
  if (code) t.expectGatewayError(answer, status, code);
  else expect(answer).toMatchObject({ status, text, cut });

  const broken = [...upstream.links];
  // The upstream sees the end of a connection only while it reads from it.
  for (const { socket } of broken) socket.resume();
  if (scripted) await within(scripted, "the fault's end");
  const closed = (): boolean => broken.every((link) => link.isClosed);
  // Some HTTP clients notice a closed connection only when they want to reuse it, so this wait may time out.
  if (!fault.kept) await until(closed, "the broken connection closed", 1000).catch(() => {});
  upstream.script = (call) => call.reply(200, [], "fine");
  const next = setup === "refused" ? "default" : setup;
  expect(await t.ask(request("GET", "/next"), next)).toMatchObject({ status: 200, text: "fine" });
  // The request was sent only once on each connection. A broken connection is closed and not reused; a sound connection
  // is reused.
  const targets = broken.flatMap((link) => link.calls).map((call) => call.target);
  expect(targets).toEqual([...broken.map(() => "/fault"), ...(fault.kept ? ["/next"] : [])]);
  // After 4 s, the pool would also close a connection that it takes for a sound one.
  if (!fault.kept) await until(closed, "the broken connection closed", 3500);
}

/** Describes the response that the client must get. */
function describeResponse({ status, code, text, cut }: Fault): string {
  if (code) return `the gateway error ${status}`;
  if (cut) return `a ${status} that breaks off`;
  return text ? `a complete ${status}` : `a ${status} without a body`;
}

export const faulty: Record<`fault: ${string}`, (t: Tools) => Promise<void>> = Object.fromEntries(
  Object.entries(faults).map(([name, fault]) => [
    `fault: the upstream ${name}, and the client gets ${describeResponse(fault)}`,
    (t: Tools) => expectFault(t, fault),
  ]),
);
