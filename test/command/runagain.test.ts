/** Work that signals start, such as reading the config file, never runs twice at the same time. */
import { expect, test } from "vitest";
import { runAgain } from "../../command/serve/runagain.ts";

test("calls of `runAgain` during a run cause one more run, which begins when the first run has ended", async () => {
  const runs: PromiseWithResolvers<void>[] = [];
  const call = runAgain(() => {
    const run = Promise.withResolvers<void>();
    runs.push(run);
    return run.promise;
  });
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  for (let i = 0; i < 5; i++) call();
  await settle();
  expect(runs).toHaveLength(1);
  for (let i = 0; i < 5; i++) call();
  await settle();
  expect(runs).toHaveLength(1);
  runs[0]?.resolve();
  await settle();
  expect(runs).toHaveLength(2);
  runs[1]?.resolve();
  await settle();
  expect(runs).toHaveLength(2);
  call();
  await settle();
  expect(runs).toHaveLength(3);
});
