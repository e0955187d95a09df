/** A log file on a disk that becomes full in the middle of a line. */
import { writeSync } from "node:fs";
import { expect, test, vi } from "vitest";
import { LineWriter } from "../../command/log/linewriter.ts";

vi.mock("node:fs", async (original) => ({
  ...(await original<typeof import("node:fs")>()),
  writeSync: vi.fn(),
}));

test("after a line that was cut off, the next one begins on a new line, even if another write fails in between", async () => {
  const noSpace = Object.assign(new Error("no space"), { code: "ENOSPC" });
  let written = "";
  let room = 4;
  vi.mocked(writeSync).mockImplementation(((_fd: number, bytes: Uint8Array, offset: number) => {
    const taken = Buffer.from(bytes.subarray(offset, offset + room));
    if (taken.length === 0) throw noSpace;
    room -= taken.length;
    written += taken.toString();
    return taken.length;
  }) as typeof writeSync);
  const output = {
    fd: 1,
    on() {},
    // After the first such error, the writer writes directly to the file descriptor.
    write: (_lines: string, done: (error: Error) => void) => done(noSpace),
  };
  const writer = new LineWriter(
    output,
    (count) => `${count} dropped`,
    () => {},
  );
  for (const line of ["lost", "first", "second"]) {
    writer.write(line);
    await new Promise(setImmediate);
    await new Promise(setImmediate);
  }
  room = Infinity;
  writer.write("third");
  await writer.close();
  expect(written).toBe("firs\nthird\n3 dropped\n");
});
