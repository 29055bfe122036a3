import WebSocket from "ws";

const MAX_FRAME = 16 << 20; // bytes of a frame that is read
const OPEN_TIMEOUT = 10_000; // milliseconds to open a connection

/** The connection cannot be opened, or is lost. */
export class LinkError extends Error {}

/** A connection to a runtime. */
export interface Link {
  /** Sends a frame. Rejects with a LinkError. */
  send(frame: string): Promise<void>;
  /** Calls the functions for each frame, and once at the end of the connection. */
  receive(frame: (text: string) => void, ended: (reason: string) => void): void;
  close(): void;
}

/** Opens a WebSocket. Rejects with a LinkError. */
export function openWebSocket(url: string, options: WebSocket.ClientOptions): Promise<Link> {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(url, ["arcp.v1"], { maxPayload: MAX_FRAME, perMessageDeflate: false, handshakeTimeout: OPEN_TIMEOUT, ...options });
    let reason = "it was lost";
    ws.on("error", (e) => {
      reason = e.message || (e as NodeJS.ErrnoException).code || "it was lost";
      reject(new LinkError(reason));
    });
    ws.on("open", () => resolve(new WebSocketLink(ws, () => reason)));
  });
}

class WebSocketLink implements Link {
  // Frames that arrive before receive is called wait here.
  private early: string[] = [];
  private frame: ((text: string) => void) | undefined;

  constructor(private readonly ws: WebSocket, private readonly reason: () => string) {
    ws.on("message", (data) => {
      const text = data.toString();
      if (this.frame === undefined) this.early.push(text);
      else this.frame(text);
    });
  }

  send(frame: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.ws.send(frame, (e) => (e ? reject(new LinkError(e.message)) : resolve()));
    });
  }

  receive(frame: (text: string) => void, ended: (reason: string) => void): void {
    this.frame = frame;
    for (const text of this.early) frame(text);
    if (this.ws.readyState === WebSocket.CLOSED) return ended(this.reason());
    this.ws.on("close", (code, text) => {
      ended(code === 1006 ? this.reason() : `the runtime has closed it: ${text.toString() || code}`);
    });
  }

  close(): void {
    if (this.ws.readyState === WebSocket.OPEN) this.ws.close(1000);
    setTimeout(() => this.ws.terminate(), 1000).unref();
  }

  /** Cuts the connection. */
  abort(): void {
    this.ws.terminate();
  }
}

/**
 * The standard streams of the process, one frame a line. From then on `console.log` and other writes to
 * `process.stdout` go to standard error.
 */
export class StdioLink implements Link {
  private readonly write = process.stdout.write.bind(process.stdout) as (text: string, done: (e?: Error | null) => void) => boolean;

  constructor() {
    process.stdout.write = process.stderr.write.bind(process.stderr);
  }

  send(frame: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.write(`${frame}\n`, (e) => (e ? reject(new LinkError(e.message)) : resolve()));
    });
  }

  receive(frame: (text: string) => void, ended: (reason: string) => void): void {
    let rest: Buffer[] = [];
    process.stdin.on("data", (data: Buffer) => {
      let start = 0;
      for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, start)) {
        const line = Buffer.concat([...rest, data.subarray(start, at)]);
        rest = [];
        start = at + 1;
        if (line.length > 0) frame(line.toString("utf8"));
      }
      if (start < data.length) rest.push(data.subarray(start));
      if (rest.reduce((n, b) => n + b.length, 0) > MAX_FRAME) ended("a line is too long");
    });
    process.stdin.on("end", () => ended("the input has ended"));
    process.stdin.on("error", (e) => ended(e.message));
    process.stdout.on("error", (e) => ended(e.message));
  }

  close(): void {
    process.stdin.pause();
    process.stdin.unref?.();
  }
}
