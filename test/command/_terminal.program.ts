/**
 * Runs a command in its own terminal, on Bun, and prints its process id, the output of the terminal and the exit
 * code. On SIGUSR2, it closes the terminal; on SIGUSR1, it sends SIGHUP to the command alone.
 * @param argv the command with its arguments
 */
import process from "node:process";

/** The members of `Bun` that this program uses. */
interface Bun {
  spawn(
    command: readonly string[],
    options: { terminal: { data(terminal: unknown, bytes: Uint8Array): void } },
  ): {
    readonly pid: number;
    readonly exited: Promise<number>;
    readonly terminal: { close(): void };
    kill(signal: string): void;
  };
}

const { Bun } = globalThis as unknown as { Bun: Bun };
const child = Bun.spawn(process.argv.slice(2), {
  terminal: { data: (_, bytes) => void process.stdout.write(bytes) },
});
console.log(`process ${child.pid}`);
process.on("SIGUSR1", () => child.kill("SIGHUP"));
process.on("SIGUSR2", () => child.terminal.close());
console.log(`exit code ${await child.exited}`);
