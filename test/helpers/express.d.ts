/** Types for the small part of Express that tests use, because the package contains no types. */
declare module "express" {
  import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";

  export type Request = IncomingMessage;
  export interface Response extends ServerResponse {
    status(code: number): this;
    send(body: string): this;
  }
  export type NextFunction = (error?: unknown) => void;
  export type Handler = (req: Request, res: Response, next: NextFunction) => unknown;
  type ErrorHandler = (error: unknown, req: Request, res: Response, next: NextFunction) => unknown;

  interface Application extends RequestListener {
    use(handler: Handler): this;
    use(handler: ErrorHandler): this;
    use(path: string, handler: Handler): this;
    listen(port: number): Server;
  }

  function express(): Application;
  namespace express {
    function json(): Handler;
  }
  export default express;
}
