// Server-sent events, as the HTML standard reads them.

export interface Frame {
  id: string | undefined;
  event: string;
  data: string;
}

/** Takes a stream's bytes, cut anywhere, and gives its frames. */
export class Frames {
  readonly #decoder = new TextDecoder();
  #rest = "";
  /** The last piece ended with a CR, to which an LF at the beginning of the next one belongs. */
  #afterCr = false;
  #id: string | undefined;
  #event = "";
  #data: string[] = [];

  *push(bytes: Uint8Array): Generator<Frame> {
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") return;
    if (this.#afterCr && text.startsWith("\n")) text = text.slice(1);
    this.#afterCr = text.endsWith("\r");
    const lines = (this.#rest + text.replace(/\r\n?/g, "\n")).split("\n");
    this.#rest = lines.pop()!;
    for (const line of lines) {
      const frame = this.#line(line);
      if (frame) yield frame;
    }
  }

  #line(line: string): Frame | undefined {
    if (line === "") {
      const frame = { id: this.#id, event: this.#event || "message", data: this.#data.join("\n") };
      const isEmpty = this.#data.length === 0;
      [this.#id, this.#event, this.#data] = [undefined, "", []];
      return isEmpty ? undefined : frame;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id") this.#id = value;
    return undefined;
  }
}
