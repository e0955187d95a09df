/** The little of frameworks that docs/frameworks.md uses, and that are not installed. */
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

declare module "nitro" {
  interface Config {
    alias?: Record<string, string>;
    routeRules?: Record<string, { proxy: string | { to: string; timeout?: number } }>;
  }
  export function defineConfig(config: Config): Config;
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
