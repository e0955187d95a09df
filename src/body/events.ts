/** An event of an event stream, as the `EventSource` of a browser would dispatch it. */
export interface StreamEvent {
  /** The value of the `event` field; `"message"` if the event has no such field. */
  readonly type: string;
  /** The values of all `data` fields of the event, joined with line feeds. */
  readonly data: string;
}

/**
 * Reads the events of an event stream. Comments, and blocks of lines without a `data` field, are not events.
 * @see https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
 */
export class EventReader {
  readonly #decoder: TextDecoder = new TextDecoder();
  #line = "";
  #type = "";
  #data: string[] = [];
  /** Whether the last character was CR, which ends a line. An LF that follows is a part of the same line break. */
  #isAfterReturn = false;

  /** Reads a chunk. Returns the events that the chunk completes. */
  read(chunk: Uint8Array): StreamEvent[] {
    const events: StreamEvent[] = [];
    for (const character of this.#decoder.decode(chunk, { stream: true })) {
      const isReturn = character === "\r";
      if (isReturn || (character === "\n" && !this.#isAfterReturn)) events.push(...this.#endLine());
      else if (character !== "\n") this.#line += character;
      this.#isAfterReturn = isReturn;
    }
    return events;
  }

  /** Processes a complete line. Returns the event that the line completes, if any. */
  #endLine(): StreamEvent[] {
    const line = this.#line;
    this.#line = "";
    if (line !== "") {
      const [, name, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
      if (name === "data") this.#data.push(value);
      else if (name === "event") this.#type = value;
      return [];
    }
    const type = this.#type || "message";
    const data = this.#data;
    this.#type = "";
    this.#data = [];
    return data.length === 0 ? [] : [{ type, data: data.join("\n") }];
  }
}
