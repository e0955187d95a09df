/** The watch reports changes of files, including changes for which the system reports no event. */
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { watchFiles } from "../../command/config/watchfiles.ts";
import { EVALUATE, startProgram } from "../helpers/program.ts";
import { pause, settled, until } from "../helpers/wait.ts";

let folder = "";
/** How often the watch has reported a change. */
let changes = 0;
let end: () => void = () => {};
beforeEach(() => {
  changes = 0;
  folder = mkdtempSync(join(tmpdir(), "fetchway-"));
});
afterEach(() => {
  end();
  rmSync(folder, { recursive: true });
});

function save(name: string, text: string): string {
  const path = join(folder, name);
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, text);
  return path;
}

/** Creates a symbolic link, or makes it point to another file or folder in one step. */
function link(name: string, to: string): string {
  const path = join(folder, name);
  symlinkSync(to, `${path}.new`);
  renameSync(`${path}.new`, path);
  return path;
}

function follow(paths: string[], interval = 20): void {
  end = watchFiles(paths, () => changes++, interval);
}

const changed = (count: number): Promise<void> => until(() => changes === count, `change ${count}`);

describe("the watch notices", () => {
  test("a change of the target of a symbolic link, and of the link itself", async () => {
    save("real/a.json", "1");
    save("real/b.json", "2");
    follow([link("config.json", "real/a.json")]);
    save("real/a.json", "3");
    await changed(1);
    link("config.json", "real/b.json");
    await changed(2);
    save("real/b.json", "4");
    await changed(3);
  });

  test("a folder that is replaced through a symbolic link: a release, and a ConfigMap of Kubernetes", async () => {
    for (const version of ["1", "2", "3"]) save(`releases/${version}/config.json`, version);
    link("current", "releases/1");
    link("..data", "releases/1");
    link("mounted.json", "..data/config.json");
    follow([join(folder, "current/config.json"), join(folder, "mounted.json")]);
    link("current", "releases/2");
    await changed(1);
    link("..data", "releases/3");
    await changed(2);
  });

  test("a change of a file that is itself a mount point, and reports the replacement of the file below the mount", async () => {
    const said = vi.spyOn(console, "error").mockImplementation(() => {});
    const outside = save("outside/config.json", "1");
    const mounted = save("inside/config.json", "");
    const { status } = spawnSync("mount", ["--bind", outside, mounted]);
    try {
      // Without permission to mount, use a symbolic link: the folder of the link gets no events about the target either.
      if (status !== 0) link("inside/config.json", "../outside/config.json");
      follow([mounted]);
      save("outside/config.json", "2");
      await changed(1);
      if (status !== 0) return;
      renameSync(save("outside/new.json", "3"), outside);
      await until(() => said.mock.calls.length > 0, "the report");
      expect(said.mock.calls).toEqual([
        [expect.stringMatching(/^fetchway: config\.json has been replaced, but the mount /)],
      ]);
      expect(changes).toBe(1);
    } finally {
      if (status === 0) spawnSync("umount", [mounted]);
      said.mockRestore();
    }
  });

  test("a change without polling the file, if its folder reports events", async () => {
    const path = save("config.json", "1");
    follow([path], 1_000_000);
    save("config.json", "2");
    await changed(1);
    renameSync(save("new.json", "3"), path);
    await changed(2);
  });

  test("a change of a file in a folder that cannot be watched", async () => {
    const path = save("later/config.json", "1");
    rmSync(join(folder, "later"), { recursive: true });
    follow([path]);
    save("later/config.json", "2");
    await changed(1);
  });

  test("a change while other files of the folder change continuously", async () => {
    const path = save("config.json", "1");
    follow([path]);
    const busy = setInterval(() => save("log", String(performance.now())), 5);
    save("config.json", "2");
    await changed(1);
    clearInterval(busy);
    expect(path).toContain("config.json");
  });
});

test("a change that is written in many steps is reported once", async () => {
  const path = save("config.json", "1");
  follow([path]);
  for (let i = 0; i < 50; i++) {
    appendFileSync(path, "2");
    await pause(5);
  }
  await changed(1);
  await settled(() => changes);
  expect(changes).toBe(1);
});

test("no change is reported while a file is missing or empty", async () => {
  const [cert, key] = [save("cert.pem", "1"), save("key.pem", "1")];
  follow([cert, key]);
  unlinkSync(cert);
  await settled(() => changes);
  writeFileSync(cert, "");
  await settled(() => changes);
  expect(changes).toBe(0);
  // A file that is written again with the same text has not changed.
  writeFileSync(cert, "1");
  await settled(() => changes);
  expect(changes).toBe(0);
  writeFileSync(cert, "2");
  await changed(1);
});

test("no change is reported after the end of a watch", async () => {
  const path = save("config.json", "1");
  follow([path]);
  end();
  save("config.json", "2");
  await settled(() => changes);
  expect(changes).toBe(0);
});

test.each(["node", "bun", "deno"] as const)(
  "a watch does not keep a process of %s alive",
  async (tool) => {
    const module = new URL("../../command/config/watchfiles.ts", import.meta.url).href;
    const source = `import { watchFiles } from "${module}"; watchFiles(["package.json"], () => {}); console.log("watches");`;
    await using program = startProgram(tool, [...EVALUATE[tool], source]);
    await program.ended();
    expect([program.code(), program.output()]).toEqual([0, "watches\n"]);
  },
);

describe("a file that stays missing", () => {
  test.each([
    ["a file", (path: string) => unlinkSync(path), "is missing:"],
    [
      "the target of a link",
      (path: string) => unlinkSync(join(path, "../target")),
      'is missing: it is a link to "target", which does not exist:',
    ],
  ])(
    "is reported once, and once more if it was there meanwhile: %s",
    async (what, remove, message) => {
      const printed = vi.spyOn(console, "error").mockReturnValue(undefined);
      const path = what === "a file" ? save("file", "1") : link("file", "target");
      if (what !== "a file") save("target", "1");
      follow([path]);
      remove(path);
      await until(() => printed.mock.calls.length === 1, "the report");
      await pause(100);
      expect(printed.mock.calls).toEqual([
        [`fetchway: file ${message} what it contained stays in use`],
      ]);
      // An event of the folder reports the file before a poll has seen it. A late poll may miss it, so keep it longer each time.
      for (let n = 1; printed.mock.calls.length === 1 && n < 10; n++) {
        save(what === "a file" ? "file" : "target", `2${n}`);
        await until(() => changes === n, "the change");
        await pause(n * 50);
        remove(path);
        await until(() => printed.mock.calls.length === 2, "another report", n * 500).catch(
          () => {},
        );
      }
      expect(printed).toHaveBeenCalledTimes(2);
      printed.mockRestore();
    },
  );
});
