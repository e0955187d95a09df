/** Checks examples/kubernetes against the schema of Kubernetes, by the Python module `kubernetes_validate`. */
import { spawnSync } from "node:child_process";
import { globSync } from "node:fs";
import { join } from "node:path";

const files = globSync("*.yaml", { cwd: join(import.meta.dirname, "../../examples/kubernetes") });
const { error, status } = spawnSync(
  process.env["PYTHON3"] ?? "python3",
  ["-m", "kubernetes_validate", "--strict", ...files],
  { cwd: join(import.meta.dirname, "../../examples/kubernetes"), stdio: "inherit" },
);
if (error !== undefined) console.error(error.message);
process.exitCode = status ?? 1;
