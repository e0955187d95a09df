let isStdoutForLog = false;

/** Prints a text about the command itself, such as its address: on stdout, or on stderr if stdout is reserved for the log. */
export function printNotice(text: string): void {
  try {
    if (isStdoutForLog) console.error(text);
    else console.log(text);
  } catch {
    // Deno throws if the terminal has closed. Then the text has no reader.
  }
}

/** Reserves stdout for the lines of the log, so that a program can parse everything that it reads there. */
export function keepStdoutForLog(): void {
  isStdoutForLog = true;
}
