import { expect, test } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { HeldBody } from "../../../src/body/held.ts";
import { ResponseBody } from "../../../src/body/responsebody.ts";
import type { Sink } from "../../../src/body/source.ts";
import { bytes, fakeScope } from "../../helpers/fakes.ts";

/** Creates a body that the test fills, and a list of the calls to its transport. */
function openBody(): { body: ResponseBody; calls: string[] } {
  const calls: string[] = [];
  const inlet = {
    pause: () => void calls.push("pause"),
    resume: () => void calls.push("resume"),
    cancel: () => void calls.push("cancel"),
  };
  return { body: new ResponseBody(fakeScope(), inlet), calls };
}

function recorder(hasRoom: () => boolean = () => true): Sink & { log: string[]; drain(): void } {
  const log: string[] = [];
  let waiting: (() => void) | undefined;
  return {
    log,
    write(chunk) {
      log.push(new TextDecoder().decode(chunk));
      return hasRoom();
    },
    onDrain: (callback) => void (waiting = callback),
    end: (trailers) => void log.push(`end ${trailers?.join() ?? ""}`),
    fail: (reason) => void log.push(`fail ${String(reason)}`),
    drain: () => waiting?.(),
  };
}

test("`collect` of HeldBody returns the bytes of a body up to the limit", async () => {
  const { body } = openBody();
  const collected = new HeldBody(body, 4).collect();
  body.push(bytes("ab"));
  body.push(bytes("cd"));
  body.end();
  expect(await collected).toEqual(bytes("abcd"));
  expect(await new HeldBody(new BytesBody(bytes("")), 0).collect()).toEqual(bytes(""));
});

test("HeldBody pipes a body over the limit with its trailer fields, and pauses the upstream until the sink has room", async () => {
  const { body, calls } = openBody();
  const held = new HeldBody(body, 3);
  const collected = held.collect();
  body.push(bytes("ab"));
  body.push(bytes("cd"));
  expect(await collected).toBeUndefined();
  expect(calls).toEqual(["pause"]);
  body.push(bytes("ef"));
  let hasRoom = false;
  const sink = recorder(() => hasRoom);
  held.pipeTo(sink);
  expect([sink.log, calls]).toEqual([["ab", "cd", "ef"], ["pause"]]);
  hasRoom = true;
  sink.drain();
  expect(calls).toEqual(["pause", "resume"]);
  body.push(bytes("gh"));
  body.end(["X-A", "1"]);
  expect(sink.log.slice(3)).toEqual(["gh", "end X-A,1"]);
});

test("the end or the failure of a body that HeldBody holds reaches the sink of a later `pipeTo`", async () => {
  for (const isFailure of [false, true]) {
    const { body } = openBody();
    const held = new HeldBody(body, 1);
    const collected = held.collect();
    body.push(bytes("ab"));
    expect(await collected).toBeUndefined();
    if (isFailure) body.fail(new Error("reset") as never);
    else body.end();
    const sink = recorder();
    held.pipeTo(sink);
    expect(sink.log).toEqual(["ab", isFailure ? "fail Error: reset" : "end "]);
  }
});

test("`collect` of HeldBody rejects if the body fails, and `cancel` of HeldBody cancels the source", async () => {
  const { body, calls } = openBody();
  const collected = new HeldBody(body, 1).collect();
  body.fail(new Error("reset") as never);
  await expect(collected).rejects.toThrow("reset");
  const other = openBody();
  const held = new HeldBody(other.body, 1);
  const late = held.collect();
  other.body.push(bytes("ab"));
  await late;
  held.cancel();
  expect([calls, other.calls]).toEqual([[], ["pause", "cancel"]]);
});
