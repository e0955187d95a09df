let isStdoutForLog = false;

/** Says something about the command itself, such as its address: on stdout, unless that is for the log only. */
export function printNotice(text: string): void {
  try {
    if (isStdoutForLog) console.error(text);
    else console.log(text);
  } catch {
    // Deno throws if the terminal has closed, in which nobody reads the text.
  }
}

/** Leaves stdout to the lines of the log, so that a program can parse all that it reads there. */
export function keepStdoutForLog(): void {
  isStdoutForLog = true;
}
