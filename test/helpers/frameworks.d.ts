/** Types for frameworks that are not installed, limited to the parts that docs/frameworks.md uses. */
declare module "@nestjs/core" {
  import type { Server } from "node:http";
  import type { NodeHandler } from "fetchway/node";

  interface Application {
    use(path: string, handler: NodeHandler): this;
    listen(port: number): Promise<unknown>;
    getHttpServer(): Server;
  }
  export const NestFactory: { create(module: new () => object): Promise<Application> };
}

declare module "next" {
  import type { IncomingMessage, Server, ServerResponse } from "node:http";

  interface App {
    prepare(): Promise<void>;
    getRequestHandler(): (req: IncomingMessage, res: ServerResponse) => Promise<void>;
  }
  export default function next(options: { dev: boolean; httpServer: Server }): App;
}

declare module "nitro" {
  interface Config {
    alias?: Record<string, string>;
    routeRules?: Record<string, { proxy: string | { to: string; timeout?: number } }>;
  }
  export function defineConfig(config: Config): Config;
}

declare module "nitro/h3" {
  export function defineHandler(handler: (event: { req: Request }) => Promise<Response>): object;
}

declare module "nitro/vite" {
  export function nitro(): { name: string };
}

declare module "@sveltejs/kit" {
  export interface RequestEvent {
    readonly request: Request;
    getClientAddress(): string;
  }
}

declare module "astro" {
  export interface APIContext {
    readonly request: Request;
    readonly clientAddress: string;
  }
}

declare module "@tanstack/react-router" {
  type Handler = (context: { request: Request }) => Promise<Response>;
  export function createFileRoute(
    path: string,
  ): (route: { server: { handlers: { ANY: Handler } } }) => object;
}

declare module "*/app.module.ts" {
  export const AppModule: new () => object;
}

declare module "@hapi/hapi" {
  import type { IncomingMessage, Server, ServerResponse } from "node:http";

  interface Request {
    readonly path: string;
    readonly raw: { readonly req: IncomingMessage; readonly res: ServerResponse };
  }
  interface Toolkit {
    readonly continue: symbol;
    readonly abandon: symbol;
  }
  export function server(options: { port: number; debug: { request: string[] } }): {
    readonly listener: Server;
    ext(event: "onRequest", method: (request: Request, h: Toolkit) => unknown): void;
    start(): Promise<void>;
  };
}

declare module "elysia" {
  type Handler = (context: { request: Request; server: object | null }) => Promise<Response>;
  export class Elysia {
    all(path: string, handler: Handler, hook: { parse: "none" }): this;
    listen(port: number): this;
  }
}

interface NuxtEvent {
  readonly node: {
    readonly req: import("node:http").IncomingMessage;
    readonly res: import("node:http").ServerResponse;
  };
}
/** Nuxt and Nitro 2 make these functions of h3 1 available without an import. */
declare function defineEventHandler(
  handler: (event: NuxtEvent) => Promise<Response | void>,
): object;
declare function toWebRequest(event: NuxtEvent): Request;
