// Servers for the tests: the real binary, and ones that answer as they are told.

import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const running = new Set<ChildProcess>();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));

/** `mainspring dev` with the `demo` model and a data folder of its own. */
export class Server {
  readonly folder = mkdtempSync(join(tmpdir(), "mainspring-"));
  #child: ChildProcess | undefined;

  private constructor(readonly port: number) {}

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  static async start(): Promise<Server> {
    const server = new Server(await freePort());
    await server.start();
    return server;
  }

  async start(): Promise<void> {
    const binary = process.env["MAINSPRING_BIN"];
    if (!binary) throw new Error("set MAINSPRING_BIN to the path of a mainspring binary");
    const settings = Object.entries(process.env).filter(([name]) => !name.startsWith("MAINSPRING_"));
    const env = {
      ...Object.fromEntries(settings),
      MAINSPRING_SCHEDULER_WEBHOOK_ALLOW_PRIVATE: "127.0.0.1",
      MAINSPRING_SCHEDULER_WEBHOOK_INTERVAL: "50ms",
    };
    const args = ["dev", "--listen", `127.0.0.1:${this.port}`, "--data-dir", this.folder, "--provider", "demo"];
    const child = spawn(binary, args, { env, stdio: "ignore" });
    running.add((this.#child = child));
    for (const end = Date.now() + 30_000; Date.now() < end; await sleep(20)) {
      if (child.exitCode !== null) throw new Error(`mainspring ended with ${child.exitCode}`);
      const response = await fetch(`${this.url}/readyz`).catch(() => undefined);
      if (response?.ok) return;
    }
    throw new Error("mainspring does not start");
  }

  async kill(): Promise<void> {
    const child = this.#child!;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
    running.delete(child);
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export interface Request {
  method: string;
  path: string;
  headers: IncomingMessage["headers"];
  body: string;
  at: number;
}

/** A server that answers each request as `answer` does, and keeps them. */
export class Stub {
  readonly requests: Request[] = [];
  readonly #server = createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const { method = "", url = "", headers } = request;
    const got = { method, path: url, headers, body: Buffer.concat(parts).toString(), at: Date.now() };
    this.requests.push(got);
    await this.answer(got, response, this.requests.length - 1);
  });

  private constructor(
    private readonly answer: (request: Request, response: ServerResponse, n: number) => unknown,
  ) {}

  static async start(answer: (request: Request, response: ServerResponse, n: number) => unknown): Promise<Stub> {
    const stub = new Stub(answer);
    stub.#server.listen(0, "127.0.0.1");
    await new Promise((resolve) => stub.#server.once("listening", resolve));
    return stub;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** An event as it goes over the wire. */
export function frame(event: { id?: string; event: string; data: unknown }): string {
  const id = event.id === undefined ? "" : `id: ${event.id}\n`;
  return `${id}event: ${event.event}\ndata: ${JSON.stringify(event.data)}\n\n`;
}
