/** A proxy that the scoreboard runs: how it is started in front of an upstream, in its plainest sensible configuration. */
export interface Contestant {
  readonly name: string;
  /** How the proxy is distributed: as a Debian package, an npm package, a Go module, or with this project. */
  readonly source: "apt" | "npm" | "go" | "project";
  /** Options that harden the proxy: a short label, such as `merge_slashes off`, and one sentence about the effect. */
  readonly hardenings?: Readonly<Record<string, string>>;
  /**
   * Starts the proxy on a free port of 127.0.0.1 in front of `http://127.0.0.1:<upstream>`. Resolves once it accepts
   * connections. If the proxy is not installed, throws an error with the command that installs it.
   */
  start(setup: Setup): Promise<Running>;
}

export interface Setup {
  /** The port of the upstream, on 127.0.0.1. */
  readonly upstream: number;
  /** An empty folder for files of this run. */
  readonly folder: string;
  /** The label of the hardening that is applied; undefined for none. */
  readonly hardening?: string;
}

export interface Running {
  readonly port: number;
  readonly version: string;
  /** The text of the configuration or program, or its path in the repository. */
  readonly configuration: string;
  stop(): Promise<void>;
}
