/** Runs podman, and removes the containers and the network of a run afterwards. */
import { spawn } from "node:child_process";

export interface Ended {
  readonly code: number | null;
  readonly output: string;
}

/** Runs podman. Returns its exit code and its output, even if it fails. */
export function tryPodman(...args: readonly string[]): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn("podman", args, { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (output += text));
    child.on("error", reject).on("close", (code) => resolve({ code, output: output.trim() }));
  });
}

/** Runs podman, and throws if it fails. Returns the last line of its output. */
export async function podman(...args: readonly string[]): Promise<string> {
  const { code, output } = await tryPodman(...args);
  if (code !== 0) throw new Error(`podman ${args.join(" ")} ended with ${code}:\n${output}`);
  return output.split("\n").at(-1) ?? "";
}

/** The containers of a run, in a separate network. */
export class Containers implements AsyncDisposable {
  readonly network: string;
  /** The first three numbers of the network's addresses. */
  readonly #prefix: string;
  readonly #ids: string[] = [];
  #last = 9;

  private constructor(network: string, prefix: string) {
    this.network = network;
    this.#prefix = prefix;
  }

  static async create(): Promise<Containers> {
    const network = await podman("network", "create", `fetchway-deploy-${process.pid}`);
    const subnet = await podman("network", "inspect", network, "--format", "{{json .Subnets}}");
    const [prefix] = /\d+\.\d+\.\d+(?=\.0\/24)/.exec(subnet) ?? [];
    if (prefix === undefined) throw new Error(`the network is no IPv4 /24: ${subnet}`);
    return new Containers(network, prefix);
  }

  /** Starts a container with its own IP address, which `argsFor` may use in the arguments. */
  async start(argsFor: (address: string) => readonly string[]): Promise<Container> {
    const address = `${this.#prefix}.${++this.#last}`;
    const own = ["--network", this.network, "--ip", address];
    const id = await podman("run", "--detach", ...own, ...argsFor(address));
    this.#ids.push(id);
    return { id, address };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ids.length > 0) await tryPodman("rm", "--force", "--time", "0", ...this.#ids);
    await tryPodman("network", "rm", this.network);
  }
}

export interface Container {
  readonly id: string;
  readonly address: string;
}

/** Stops a container as Docker and Kubernetes do: STOPSIGNAL, and SIGKILL after `grace` seconds. Resolves to its exit code. */
export async function stop({ id }: Container, grace: number): Promise<number> {
  await podman("stop", "--time", String(Math.round(grace)), id);
  return Number(await podman("inspect", "--format", "{{.State.ExitCode}}", id));
}
