/** Checks that a proxy does the work for which it is measured. */
import { Agent, request } from "node:http";
import { Agent as SecureAgent, request as requestSecurely } from "node:https";
import type { Workload } from "./workloads.ts";

interface Answer {
  readonly status: number;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly body: Buffer;
}

/**
 * Sends a request twice on one connection, and checks the responses completely.
 * @param secure whether the proxy serves TLS
 * @throws Error that says what was wrong
 */
export async function validate(workload: Workload, port: number, secure = false): Promise<void> {
  const options = { keepAlive: true, maxSockets: 1 };
  const agent = secure
    ? new SecureAgent({ ...options, rejectUnauthorized: false })
    : new Agent(options);
  try {
    for (let i = 0; i < 2; i++) check(await ask(workload, port, agent), workload);
  } finally {
    agent.destroy();
  }
}

/** Sends a request of a workload, and reads the whole response. The agent decides whether TLS is used. */
export function ask(
  { method, path, body, type }: Workload,
  port: number,
  agent: Agent,
): Promise<Answer> {
  const headers = body ? { "Content-Type": type, "Content-Length": body.length } : {};
  return new Promise((resolve, reject) => {
    const send = agent instanceof SecureAgent ? requestSecurely : request;
    const sent = send({ host: "127.0.0.1", port, method, path, agent, headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => void chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks),
        }),
      );
    });
    sent.setTimeout(10_000, () => sent.destroy(new Error("no answer within 10 s")));
    sent.on("error", reject);
    sent.end(body);
  });
}

function check({ status, headers, body }: Answer, { answer, type }: Workload): void {
  const expected = { "content-type": type, etag: '"bench"', "cache-control": "max-age=60" };
  if (status !== 200) throw new Error(`status ${status} instead of 200`);
  for (const [name, value] of Object.entries(expected)) {
    if (headers[name] !== value) throw new Error(`${name}: ${String(headers[name])}, not ${value}`);
  }
  if (!body.equals(answer)) {
    throw new Error(`a body of ${body.length} bytes, not the right ${answer.length}`);
  }
}
