/** What of a process says whether other code ran before the command. */
interface Process {
  readonly execArgv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Whether modules may have been loaded before the command: agents are, by `--require`, `--import`, a loader or
 * NODE_OPTIONS, and may have wrapped methods of Node's to see the chunks of bodies. Then no buffer is used again.
 */
export function isPreloaded({ execArgv, env }: Process): boolean {
  const flags = /^(?:-r|--require|--import|--loader|--experimental-loader)(?:=|$)/;
  return Boolean(env["NODE_OPTIONS"]) || execArgv.some((argument) => flags.test(argument));
}
