/** The command reuses buffers only if no other code was loaded before it. */
import { expect, test } from "vitest";
import { isPreloaded } from "../runtimes/cli/preload.ts";

test.each([
  [[], {}, false],
  [["--max-old-space-size=100", "--enable-source-maps"], { PATH: "/bin" }, false],
  [["--require", "./agent.js"], {}, true],
  [["-r", "./agent.js"], {}, true],
  [["--import=./agent.js"], {}, true],
  [["--experimental-loader", "./agent.js"], {}, true],
  [[], { NODE_OPTIONS: "--require ./agent.js" }, true],
  [[], { NODE_OPTIONS: "" }, false],
])("flags %j and environment %j: %j", (execArgv, env, expected) => {
  expect(isPreloaded({ execArgv, env })).toBe(expected);
});
