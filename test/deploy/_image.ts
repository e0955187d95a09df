/** Builds the image of examples/container with this working copy of the package. */
import { spawnSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import manifest from "../../package.json" with { type: "json" };
import { podman, tryPodman } from "./_podman.ts";

const ROOT = join(import.meta.dirname, "../..");
export const IMAGE: string = `fetchway:${manifest.version}`;
const BASE = `fetchway-base:${manifest.devDependencies.node}`;

/** The Debian release of the official image of Node. */
const DEBIAN = "bookworm";
const CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt";

function run(program: string, args: readonly string[], cwd: string = ROOT): string {
  const { status, error, stdout } = spawnSync(program, args, {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")} failed`, { cause: error });
  return stdout.trim();
}

/**
 * Makes a replacement for the base image `node:…-slim`, with Debian, the pinned Node, and npm. It trusts the certificate
 * authorities of this machine, because the build may be behind a proxy with its own authority.
 */
export async function makeBase(folder: string): Promise<string> {
  if ((await tryPodman("image", "exists", BASE)).code === 0) return BASE;
  const local = join(folder, "local");
  for (const each of ["bin", "etc", "lib/node_modules"]) {
    mkdirSync(join(local, each), { recursive: true });
  }
  copyFileSync(join(ROOT, "node_modules/node/bin/node"), join(local, "bin/node"));
  // `npm run` sets `npm_execpath` to the path of npm/bin/npm-cli.js.
  const npm = join(process.env["npm_execpath"] ?? "", "../..");
  cpSync(npm, join(local, "lib/node_modules/npm"), { recursive: true });
  copyFileSync(CERTIFICATES, join(local, "etc/certificates.pem"));
  writeFileSync(join(local, "etc/npmrc"), "cafile=/usr/local/etc/certificates.pem\n");
  const tar = join(folder, "base.tar");
  run("mmdebstrap", [
    "--quiet",
    "--variant=essential",
    "--include=libstdc++6",
    `--customize-hook=copy-in ${local} /usr`,
    '--customize-hook=ln -s ../lib/node_modules/npm/bin/npm-cli.js "$1/usr/local/bin/npm"',
    DEBIAN,
    tar,
  ]);
  await podman("import", tar, BASE);
  return BASE;
}

/** Packs this working copy, and builds the image in a folder with the files that the Containerfile names. */
export async function buildImage(folder: string, base: string): Promise<void> {
  const files = join(folder, "image");
  mkdirSync(files);
  run("npm", ["pack", "--silent", "--pack-destination", files]);
  const [tarball = ""] = readdirSync(files);
  const example = join(ROOT, "examples/container");
  copyFileSync(join(example, "fetchway.config.json"), join(files, "fetchway.config.json"));
  // The package is a local file here, so the build must also copy that file.
  const text = readFileSync(join(example, "Containerfile"), "utf8");
  const container = join(files, "Containerfile");
  writeFileSync(container, text.replace("COPY package.json", `COPY ${tarball} package.json`));
  const dependencies = { fetchway: `file:${tarball}` };
  writeFileSync(join(files, "package.json"), JSON.stringify({ dependencies }));
  run("npm", ["install", "--package-lock-only", "--silent"], files);
  console.log(
    await podman(
      "build",
      // Without this, podman writes an image without its health check.
      "--format",
      "docker",
      "--network",
      "host",
      "--build-arg",
      `NODE_IMAGE=${base}`,
      "--tag",
      IMAGE,
      "--file",
      container,
      files,
    ),
  );
}
