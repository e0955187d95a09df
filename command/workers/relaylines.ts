import type { Readable } from "node:stream";

/** If more characters than this wait for the end of their line, they are passed on as a line. */
const MAX_LINE = 1024 * 1024;

/**
 * Passes on the output of a worker in whole lines, so that the lines of two workers do not mix.
 * @param write is called with one or more lines, without the last line feed
 */
export function relayLines(output: Readable, write: (lines: string) => void): void {
  let rest = "";
  output.setEncoding("utf8");
  output.on("data", (text: string) => {
    const end = text.lastIndexOf("\n");
    if (end >= 0) {
      write(rest + text.slice(0, end));
      rest = text.slice(end + 1);
    } else rest += text;
    if (rest.length <= MAX_LINE) return;
    write(rest);
    rest = "";
  });
  output.on("end", () => {
    if (rest !== "") write(rest);
  });
}
