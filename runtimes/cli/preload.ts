/** The properties of a process that show whether other code ran before the command. */
interface Process {
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Whether modules may have been loaded before the command, by `--require`, `--import`, a loader or NODE_OPTIONS. APM agents
 * are loaded in this way, and may have wrapped methods of Node to keep the chunks of bodies. The command then leaves the
 * pool option `reuseBuffers` off.
 */
export function isPreloaded({ execArgv, env }: Process): boolean {
  const flags = /^(?:-r|--require|--import|--loader|--experimental-loader)(?:=|$)/;
  return Boolean(env["NODE_OPTIONS"]) || execArgv.some((argument) => flags.test(argument));
}
